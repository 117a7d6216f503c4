"""The AWS that the tests use: moto, corrected where moto differs from AWS's documentation."""
