"""The job, the tables and the commands of streams-groups."""
