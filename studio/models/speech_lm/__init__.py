"""The speech language model: checkpoint layout, the class vLLM serves, and how tokens are drawn."""
