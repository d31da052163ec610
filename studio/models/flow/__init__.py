"""The flow: speech tokens to mel. Networks and their caches only; no threads, no requests."""

from studio.models.flow.flow import Flow
from studio.models.flow.prompt import PromptPreparation
from studio.models.flow.sizes import FlowConfig
from studio.models.flow.state import FlowState, PromptFlowCache

__all__ = ["Flow", "FlowConfig", "FlowState", "PromptFlowCache", "PromptPreparation"]
