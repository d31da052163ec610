"""Faults of access, as axe finds them on a page."""

from __future__ import annotations

from importlib import resources

from playwright.sync_api import Page

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")

# A colour half-way through a transition, or a panel that fades in, is no fault of the page. One that was replaced
# rejects its promise, and its follower is waited for; one that never ends, as of a sign of work, is let be.
STILL = """async () => {
    const ends = (one) => one.playState === "running" && Number.isFinite(one.effect.getComputedTiming().endTime);
    for (let moving; (moving = document.getAnimations().filter(ends)).length;) {
        await Promise.allSettled(moving.map((one) => one.finished));
    }
}"""

RUN = """async (within) => {
    const { violations } = await axe.run(within, { resultTypes: ["violations"] });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => [id, node.target.join(" "), node.failureSummary]));
}"""


def faults(page: Page, within: str = "html") -> set[tuple[str, str, str]]:
    """Rule, selector and reason of each fault in the part of the page that the selector `within` names."""
    page.evaluate(AXE)
    page.evaluate(STILL)
    return {(rule, target, why) for rule, target, why in page.evaluate(RUN, within)}
