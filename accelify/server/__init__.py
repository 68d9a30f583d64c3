"""The language server: findings in an editor as one types, with the rules' pages and ways out."""
