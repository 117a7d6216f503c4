"""The connector's options: models, validation, normalisation, and messages about invalid options."""
