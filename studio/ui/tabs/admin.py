"""The Admin tab: an empty frame that assets/web/admin.js fills from /admin once somebody has entered."""

from __future__ import annotations

import html
from urllib.parse import urlsplit

import gradio as gr

from studio.settings import Settings
from studio.ui.scripts import mount_script

TEMPLATE = """<div class='admin' data-state='closed'>
<form data-part='door' method='dialog'><label><span data-say='admin.page.password'></span>
<input type='password' name='password' autocomplete='current-password' required></label>
<p class='admin-buttons'><button type='submit' class='primary' data-say='admin.page.enter'></button>
<a class='button' data-part='sign-in' data-provider='PROVIDER' hidden></a></p>
<p class='field-error' role='alert' data-part='door-error' hidden></p>
<p data-part='framed' hidden><span data-say='admin.page.framed'></span>
<a target='_blank' data-part='own-tab' data-say='admin.page.own_tab'></a></p></form>
<div data-part='inside' hidden>
<div class='admin-head'><label data-part='shown' hidden><span data-say='models.shown'></span>
<select data-part='model'></select></label>
<button type='button' data-part='leave' data-say='admin.page.leave'></button></div>
<section><h2 data-say='admin.page.now'></h2><dl class='admin-figures' data-part='figures'></dl></section>
<section><h2 data-say='admin.page.gpus'></h2><div data-part='gpus'></div></section>
<section><h2 data-say='admin.page.ladder'></h2><ol class='admin-ladder' data-part='ladder'></ol>
<p data-say='admin.page.ladder_note'></p></section>
<section><h2><select data-part='span' data-say-label='admin.page.history'>
<option value='10m' data-say='admin.page.charts'></option>
<option value='24h' data-say='admin.page.day'></option></select></h2>
<div class='admin-charts' data-part='charts'></div></section>
<section><h2 data-say='admin.page.requests'></h2>
<div class='admin-scroll' data-part='requests'></div></section>
<section><h2 data-say='admin.page.pages'></h2>
<div class='admin-pages' role='img' data-say-label='admin.page.pages' data-part='pages'></div>
<p data-part='pages-note'></p></section>
<section><h2 data-say='admin.page.timeline'></h2>
<canvas data-part='timeline'
 role='img' data-say-label='admin.page.timeline'></canvas>
<p class='admin-legend' data-part='legend'></p>
<p data-part='timeline-note'></p></section>
<section><h2 data-say='models.title'></h2>
<div class='admin-scroll' data-part='models'></div>
<p data-part='models-note'></p>
<label class='admin-check' data-part='models-abort-row' hidden><input type='checkbox' data-part='models-abort'>
<span data-say='models.abort'></span></label>
<label class='admin-check' data-part='models-force-row' hidden><input type='checkbox' data-part='models-force'>
<span data-say='models.force'></span></label>
<p class='field-error' role='alert' data-part='models-error' hidden></p></section>
<section><h2 data-say='admin.page.knobs'></h2>
<div data-part='knobs'></div>
<p role='status' aria-live='polite' data-part='plan'></p>
<p class='field-error' role='alert' data-part='knob-error' hidden></p>
<p class='admin-buttons'><label><span data-say='admin.page.prompt_s'></span>
<input type='number' data-part='prompt-s' value='5' min='0.5' max='30' step='any'></label>
<label><span data-say='admin.page.clip_s'></span>
<input type='number' data-part='clip-s' value='8' min='0.5' max='60' step='any'></label></p>
<label class='admin-check'><input type='checkbox' data-part='abort'>
<span data-say='admin.page.abort_running'></span></label>
<label class='admin-check'><input type='checkbox' data-part='force'><span data-say='admin.page.force'></span></label>
<p class='admin-buttons'><button type='button' data-part='preview' data-say='admin.page.preview'></button>
<button type='button' class='primary' data-part='apply' data-say='admin.page.apply'></button>
<input type='text' maxlength='60' data-part='preset-name'
 data-say-placeholder='admin.page.preset' data-say-label='admin.page.preset'>
<button type='button' data-part='save-preset' data-say='admin.page.save'></button>
<select data-part='presets' data-say-label='admin.page.load'></select>
<a data-part='export' download='studio.toml' data-say='admin.page.export'></a>
<a data-part='export-env' download='studio.env' data-say='admin.page.export_env'></a>
<label class='button'><span data-say='admin.page.import'></span>
<input type='file' data-part='import'></label></p></section>
<section><h2 data-say='admin.page.lm_actions'></h2>
<p class='admin-buttons'><button type='button' data-part='forget' data-say='admin.page.forget_prompts'></button>
<button type='button' data-part='sleep' data-say='admin.page.sleep'></button>
<button type='button' data-part='wake' data-say='admin.page.wake' hidden></button></p>
<p role='status' aria-live='polite' data-part='lm-told'></p>
<p class='field-error' role='alert' data-part='lm-error' hidden></p></section>
<section><h2 data-say='lab.page.title'></h2><div data-part='lab'></div></section>
<section><h2 data-say='admin.page.log'></h2>
<div class='admin-scroll' data-part='log'></div></section>
</div></div>"""


def admin_tab(settings: Settings) -> None:
    """Holds no data and no handlers of Gradio's; everything comes from /admin, which has its own guard."""
    provider = urlsplit(settings.oidc_issuer).netloc if settings.admins() else ""
    frame = TEMPLATE.replace("PROVIDER", html.escape(provider, quote=True))
    gr.HTML(
        html_template=frame, js_on_load=mount_script("mountAdmin", "admin"), elem_id="admin", padding=False
    )
