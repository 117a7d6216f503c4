"""The tests' AWS: moto, and what AWS documents where moto does otherwise."""
