"""PyAirbyte as the platform, against an embedded AWS: `make test-clients`."""
