"""The Script tab: where its parts are. What they do is assets/web/script.js on /v1/audio/scripts."""

from __future__ import annotations

import gradio as gr

from studio.script.parse import FORMS
from studio.ui.scripts import mount_script

FORM_OPTIONS = "".join(f"<option value='{form}' data-say='script.form_{form}'></option>" for form in ("auto", *FORMS))
SCRIPT_TEMPLATE = f"""
<div class='script' data-state='loading'>
  <div class='script-head'>
    <label><span data-say='script.pick'></span> <select data-part='pick'></select></label>
    <label class='script-title'><span data-say='script.title'></span>
      <input type='text' data-part='title' maxlength='64'></label>
    <button type='button' data-part='delete' data-say='script.delete'></button>
  </div>
  <section class='script-new' data-part='new' data-own-drop data-say-label='script.new_title'>
    <h2 data-say='script.new_title'></h2>
    <p data-say='script.new_how'></p>
    <textarea data-part='content' rows='8' dir='auto' data-say-label='script.content'
      data-say-placeholder='script.content_hint'></textarea>
    <p class='field-error' data-part='error' role='alert' hidden></p>
    <div class='script-tools'>
      <label><span data-say='script.form'></span> <select data-part='form'>{FORM_OPTIONS}</select></label>
      <label><span data-say='script.voice'></span> <select data-part='voice'></select></label>
      <label class='file-button'><span data-say='script.file'></span>
        <input type='file' data-part='file' accept='.txt,.csv,.tsv,.srt,.vtt'></label>
      <button type='button' data-part='example' data-say='script.use_example'></button>
      <button type='button' class='primary' data-part='make' data-say='script.make'></button>
    </div>
  </section>
  <div class='script-work'>
    <section class='script-cast' data-part='cast' data-say-label='script.cast' hidden></section>
    <div class='script-actions'>
      <button type='button' class='primary' data-part='speak' data-say='script.speak'></button>
      <button type='button' data-part='stop' data-say='button.stop'></button>
      <button type='button' data-part='hear' data-say='script.hear'></button>
      <progress data-part='progress' max='1' value='0' data-say-label='script.progress' hidden></progress>
      <span data-part='said' role='status' aria-live='polite'></span>
    </div>
    <ol class='script-lines' data-part='lines' data-say-label='script.lines'></ol>
    <p><button type='button' data-part='add' data-say='script.add'></button></p>
    <section class='exports' data-part='exports' data-say-label='script.export' hidden>
      <h2 data-say='script.export'></h2><span data-part='files'></span>
      <label><input type='checkbox' data-part='matched' checked> <span data-say='script.matched'></span></label>
    </section>
  </div>
</div>
"""


def script_tab() -> None:
    gr.HTML(
        html_template=SCRIPT_TEMPLATE,
        js_on_load=mount_script("mountScript", "script"),
        elem_id="script",
        padding=False,
    )
