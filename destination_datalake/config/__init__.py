"""The connector's options: their models, validation and normalisation, and messages about invalid options."""
