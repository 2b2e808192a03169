"""Durable batch jobs: files, jobs, and leased tasks that any worker can take over."""
