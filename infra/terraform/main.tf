# A CloudFormation template of this folder as a Terraform module: the same resources, names, policies and outputs, because
# it is the template that creates them.

terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "name" {
  description = "Name of the stack, and of what the template names after it."
  type        = string
  default     = "lake"
}

variable "template" {
  description = "datalake for the data lake, namespace for a further database of it."
  type        = string
  default     = "datalake"

  validation {
    condition     = contains(["datalake", "namespace"], var.template)
    error_message = "datalake or namespace"
  }
}

variable "parameters" {
  description = "The template's parameters, by name. CloudFormation refuses values that it does not accept."
  type        = map(string)
}

resource "aws_cloudformation_stack" "stack" {
  name          = var.name
  template_body = file("${path.module}/../cloudformation/${var.template}.yaml")
  parameters    = var.parameters
  capabilities  = ["CAPABILITY_IAM"]
}

output "outputs" {
  description = "The template's outputs, by name: Configuration is the connector's configuration."
  value       = aws_cloudformation_stack.stack.outputs
}
