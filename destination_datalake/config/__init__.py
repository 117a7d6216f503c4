"""The connector's options: their models, the conversion to canonical forms, and messages about invalid options."""
