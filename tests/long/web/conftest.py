"""What the tests of the page have: its sample, its server and the browser."""

from tests.web.conftest import chromium, sample_template, serve_page, url
from tests.web.test_browser import huge, large_url

__all__ = ["chromium", "huge", "large_url", "sample_template", "serve_page", "url"]
