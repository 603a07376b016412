"""What `streams-groups demo` does: a local broker, living groups, the job, the tables."""
