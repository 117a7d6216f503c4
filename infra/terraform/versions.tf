terraform {
  # Validation rules may name other variables since 1.9.
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source = "hashicorp/aws"
      # iceberg_configuration.append_only came with 6.8.
      version = ">= 6.8, < 7"
    }
  }
}
