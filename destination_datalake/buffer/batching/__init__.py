"""Which records are a batch, when, and how large it is."""
