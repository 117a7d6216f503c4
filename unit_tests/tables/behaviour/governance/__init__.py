"""Tables that Lake Formation governs: LF-Tags and grants are there before rows are."""
