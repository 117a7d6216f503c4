"""Whatever values a source sends, in whatever table: other engines read them, or a reject has them."""
