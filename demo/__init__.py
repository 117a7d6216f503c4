"""A demonstration of the connector that needs no AWS account."""
