"""Text encoders that embedding and reranking share: no workload of its own."""
