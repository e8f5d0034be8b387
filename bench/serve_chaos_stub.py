"""The stub endpoint in a bad mood: three answers in ten are wrong, in every way that endpoints are wrong."""

from __future__ import annotations

import random

from stub import RESPONSE, Endpoint, main


def _response(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


CLOSE = b""
FAULTS = (
    _response("429 Too Many Requests", b'{"error": {"message": "slow down"}}', "Retry-After: 1"),
    _response("429 Too Many Requests", b'{"error": "busy"}'),
    _response("500 Internal Server Error", b'{"error": "oops"}'),
    _response("503 Service Unavailable", b"<html>Service unavailable</html>"),
    _response("401 Unauthorized", b'{"error": {"message": "bad key"}}'),
    _response("400 Bad Request", b'{"error": {"message": "no", "type": "invalid_request_error"}}'),
    _response("200 OK", b'{"choices": [{"message": {"content": "A"'),
    _response("200 OK", b'{"choices": []}'),
    _response("200 OK", b'{"choices": [{"finish_reason": "stop"}]}'),
    _response("200 OK", b'{"choices": [{"message": {"content": 7}}]}'),
    _response("200 OK", b"[]"),
    _response("200 OK", b"\xff\xfe"),
    RESPONSE[: len(RESPONSE) // 2],
    CLOSE,
)


class Moody(Endpoint):
    """Answers well, or with one of the faults."""

    luck = random.Random(7)

    def response(self, body: bytes) -> bytes:
        del body
        return self.luck.choice(FAULTS) if self.luck.random() < 0.3 else RESPONSE

    def _answer(self, response: bytes) -> None:
        super()._answer(response)
        if response == CLOSE or (response != RESPONSE and RESPONSE.startswith(response)):
            assert self._transport is not None
            self._transport.close()


if __name__ == "__main__":
    main(Moody)
