"""Where a warehouse may be, and what is read there. A store over HTTP is tried by `make check-deploy`."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_app.serve.place import Place
from streaming_app.serve.stores import reason

STORES = [
    "s3a://bucket",
    "s3a://my.bucket-1/a/b",
    "abfss://container@account.dfs.core.windows.net/a",
    "gs://bucket/a_b/c=1",
    "hdfs://namenode:8020/a",
    "hdfs://nameservice/a",
]


@pytest.mark.parametrize("uri", STORES)
def test_a_uri_of_a_store_stays_as_it_is_and_names_what_is_below_it(uri: str) -> None:
    place = Place.of(uri + "/")
    assert (str(place), place.is_local) == (uri, False)
    assert str(place / "_jobs" / "a.json") == f"{uri}/_jobs/a.json"
    assert ((place / "a" / "b").parent, (place / "a" / "b").name) == (place / "a", "b")
    assert place.absolute() == place
    assert place.options


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("dir", "dir"),
        ("/a/b/", "/a/b"),
        ("a:b", "a:b"),
        ("file:///a/b", "/a/b"),
        ("file:/a", "/a"),
        ("file:///with%20space", "/with space"),
    ],
)
def test_a_path_and_a_file_uri_are_local(text: str, path: str) -> None:
    place = Place.of(text)
    assert (place.path, place.is_local, place.options) == (Path(path), True, None)
    assert place.absolute().path == Path(path).absolute()
    assert place == Place.of(Path(path))


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/a",
        "s3a:/bucket/a",
        "s3a://",
        "s3a:///a",
        "s3a://key:secret@bucket/a",
        "s3a://bucket/a b",
        "s3a://bucket/a%20b",
        "s3a://bucket//a",
        "s3a://bucket/../a",
        "s3a://bucket/`",
        "abfss://container/a",
        "hdfs:///a",
        "ftp://host/a",
        "file://host/a",
        "file:///a?b",
    ],
)
def test_what_spark_and_delta_rs_do_not_both_take_is_refused_with_what_they_take(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be .*://"):
        Place.of(text)


def test_local_files_and_directories_are_read(tmp_path: Path) -> None:
    place = Place.of(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_text("ü", "utf-8")
    (tmp_path / "g").touch()
    assert (place / "a" / "f").read_text() == "ü"
    assert sorted(place.names()) == ["a", "g"]
    assert (place / "nothing").names() == []
    assert place.count_files() == 2
    with pytest.raises(FileNotFoundError):
        (place / "nothing").read_text()


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            "Kernel error -> Generic S3 error\n    \x1b[31m↳\x1b[0m Error performing GET http://127.0.0.1:1/b/x in 1ms "
            "after 4 retries, max_retries\n    \x1b[31m↳\x1b[0m 4, retry_timeout\n  30s  - HTTP error\n client error "
            "(Connect)\n  \x1b[31m↳\x1b[0m tcp connect error\n   \x1b[31m↳\x1b[0m Connection refused (os error 111)\n",
            "http://127.0.0.1:1 does not answer: tcp connect error Connection refused (os error 111)",
        ),
        (
            "Error performing PUT http://host:9/b?list-type=2 in 4ms - Server returned non-2xx status code\n  404 Not "
            "Found\n<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>",
            "http://host:9 says NoSuchBucket: The specified bucket does not exist",
        ),
        (
            "Error performing HEAD https://h/b - 403 Forbidden",
            "https://h refuses (403 Forbidden): the environment says",
        ),
        (
            "PUT http://169.254.169.254/latest/api/token denied",
            "no credentials: the environment says",
        ),
        (
            "RPC error: Exception\nPermission denied: user=alice\n\tat org.apache.A$1.b(A.java:661)\n\tat x",
            "RPC error: Exception Permission denied: user=alice",
        ),
        ("communicating with HDFS\n  Connection refused", "the store does not answer: Connection refused"),
        ("something\n   \x1b[31m↳\x1b[0m else", "something else"),
    ],
)
def test_the_troubles_of_stores_are_told_in_one_line(said: str, line: str) -> None:
    assert reason(OSError(said)).startswith(line)
    assert ".java" not in reason(OSError(said))
