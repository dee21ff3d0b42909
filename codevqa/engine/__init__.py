"""What a user calls, the course of one question, and the calls begun ahead of its program."""
