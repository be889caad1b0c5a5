# ruff: noqa: RUF001
"""Chat templates, written after the documented format of each family.

Those that change what they are given matter most: they trim, move, drop or rewrite text that an
open prompt may already hold.
"""

from __future__ import annotations

CHATML = """\
{%- if messages[0].role != 'system' %}
{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
{%- endif %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

# The thinking of an answer is shown up to the next message of the user, then dropped.
THINKING = """\
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for m in messages %}
{%- set text = m.content %}
{%- if m.role == 'assistant' and loop.index0 < ns.last and '</think>' in text %}
{%- set text = text.split('</think>')[-1].lstrip('\n') %}
{%- endif %}
{{- '<|im_start|>' + m.role + '\n' + text + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}"""

LLAMA3 = """\
{{- '<|begin_of_text|>' }}
{%- for m in messages %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}"""

LLAMA4 = (
    LLAMA3.replace("start_header_id", "header_start")
    .replace("end_header_id", "header_end")
    .replace("<|eot_id|>", "<|eot|>")
)

# The system text goes in front of the first message of the user.
_MISTRAL = """\
{%%- set ns = namespace(system='') %%}
{{- '<s>' }}
{%%- for m in messages %%}
{%%- if m.role == 'system' %%}{%%- set ns.system = ns.system + m.content + '\n\n' %%}
{%%- elif m.role == 'user' %%}
{{- '%s' + ns.system + m.content + '%s' }}{%%- set ns.system = '' %%}
{%%- else %%}{{- '%s' + m.content + '</s>' }}{%%- endif %%}
{%%- endfor %%}"""
MISTRAL_V1 = _MISTRAL % (" [INST] ", " [/INST]", " ")
MISTRAL_V3 = _MISTRAL % ("[INST] ", "[/INST]", " ")
MISTRAL_TEKKEN = _MISTRAL % ("[INST]", "[/INST]", "")

GEMMA = """\
{{- '<bos>' }}
{%- for m in messages %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\n'
    + m.content | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %}"""

DEEPSEEK = """\
{{- '<｜begin▁of▁sentence｜>' }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{- m.content }}
{%- elif m.role == 'user' %}{{- '<｜User｜>' + m.content }}
{%- else %}
{{- '<｜Assistant｜></think>' + m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜><think>' }}{%- endif %}"""

PLAIN = """\
{%- for m in messages %}
{{- '### ' + m.role | capitalize + ':\n' + m.content + '\n\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '### Assistant:\n' }}{%- endif %}"""

# Nothing stands between the messages but a word and a blank.
DIALOGUE = """\
{%- for m in messages %}
{{- ('User: ' if m.role == 'user' else m.role | capitalize + ': ') + m.content | trim + '\n\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- 'Assistant:' }}{%- endif %}"""

LINES = """\
{%- for m in messages %}{{- '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %}"""

UPPER = CHATML.replace("m.content", "m.content | upper")

REVERSED = CHATML.replace("for m in messages", "for m in messages | reverse")
