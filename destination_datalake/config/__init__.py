"""The connector's options: their models, their canonical forms, and messages about invalid options."""
