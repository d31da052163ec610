"""Blind listening tests: their design and material, running them, the answers, and what the answers say"""
