"""The caller of a request, the rules that decide whether the request is refused, and the error messages."""
