"""Example agents. They are ordinary LangGraph programs and do not import grape_lc."""
