"""Who is served, and how much of it: key files, audit, quotas."""
