"""Kafka's own generated classes and JSON converters, called over py4j from the jars of a release. No Java source."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

from streaming_app.jvm.java import find_java
from tests.support.jvm_options import FAST

_PACKAGE = "org.apache.kafka.coordinator.group.generated"  # of names without a package


class OracleError(Exception):
    """A class of Kafka's threw an exception."""


class Oracle:
    """A JVM with the classes of one release; `close` stops it.

    Every call to the JVM takes 0.1 to 0.3 ms, so classes are looked up only once.
    """

    def __init__(self, jars: Sequence[Path]) -> None:
        py4j_jar = next(Path(pyspark.__file__).parent.glob("jars/py4j-*.jar"))
        port, token, self._process = _launch(py4j_jar, jars)
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        self.jvm = jvm = self._gateway.jvm
        self._message_util = jvm.org.apache.kafka.common.protocol.MessageUtil
        self._accessor = jvm.org.apache.kafka.common.protocol.ByteBufferAccessor
        self._wrap = jvm.java.nio.ByteBuffer.wrap
        self._bytes = jvm.org.apache.kafka.common.utils.Bytes
        self._mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self._classes: dict[str, Any] = {}

    def close(self) -> None:
        self._gateway.shutdown()
        self._process.stdin.close()
        self._process.wait(timeout=300)

    def bytes_of(self, name: str, version: int, data: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        """Return Kafka's bytes for a message in JSON, version first, and the JSON that Kafka prints for the bytes."""
        converter = self._class(f"{name}JsonConverter")
        try:
            message = converter.read(self._mapper.readTree(json.dumps(data)), version)
            encoded = bytes(self._message_util.toVersionPrefixedBytes(version, message))
            return encoded, json.loads(converter.write(message, version).toString())
        except Py4JError as error:
            raise OracleError(str(error)) from None

    def json_of(self, name: str, version: int, body: bytes) -> dict[str, Any]:
        """Return the JSON that Kafka prints for a message's bytes (without the version). Raises OracleError."""
        try:
            message = self._class(name)(self._accessor(self._wrap(body)), version)
            return json.loads(self._class(f"{name}JsonConverter").write(message, version).toString())
        except Py4JError as error:
            raise OracleError(str(error)) from None

    def text_of(self, data: bytes) -> str:
        """Return bytes in the form in which the console consumer prints them with a BytesDeserializer."""
        return str(self._bytes.wrap(data).toString())

    def _class(self, name: str) -> Any:
        if name not in self._classes:
            node = self.jvm
            for part in (name if "." in name else f"{_PACKAGE}.{name}").split("."):
                node = getattr(node, part)
            self._classes[name] = node
        return self._classes[name]


def _launch(py4j_jar: Path, jars: Sequence[Path]) -> tuple[int, str, Popen[bytes]]:
    port, token, process = launch_gateway(
        jarpath=str(py4j_jar),
        classpath=os.pathsep.join(map(str, jars)),
        java_path=str(find_java()),
        javaopts=["-Xmx256m", *FAST.split()],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    return port, token, process
