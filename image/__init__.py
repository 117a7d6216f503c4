"""What the image leaves out, and how it is tried without a container engine."""
