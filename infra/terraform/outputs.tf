output "store" {
  description = "What `store` is in savepoints.toml."
  value       = "s3://${aws_s3_bucket.store.id}/${var.prefix}"
}

output "policies" {
  description = "ARNs of the policies, by role: taker, operator, reader."
  value       = { for role, policy in aws_iam_policy.role : role => policy.arn }
}

output "key_policy" {
  description = "ARN of the policy for the key, if there is one; attach it beside a role's."
  value       = one(aws_iam_policy.key[*].arn)
}
