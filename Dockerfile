# The demo page, on processors: docker build -t codevqa . && docker run --rm -p 127.0.0.1:7860:7860 codevqa
FROM python:3.11-slim
WORKDIR /codevqa
# As in the Makefile: exact versions, held to their hashes; torch as a build for CPUs.
COPY requirements requirements
RUN python -P -m pip install --quiet --no-cache-dir --no-deps --require-hashes \
        --extra-index-url https://download.pytorch.org/whl/cpu -r requirements/torch-cpu.txt
RUN python -P -m pip install --quiet --no-cache-dir --no-deps --require-hashes \
        -r requirements/base.txt -r requirements/demo.txt
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY codevqa codevqa
COPY eval eval
COPY mini mini
COPY prompts prompts
RUN python -P -m pip install --quiet --no-cache-dir --no-deps --no-build-isolation --editable .
RUN useradd --create-home visitor
USER visitor
EXPOSE 7860
# Inside, all addresses; outside, whatever -p publishes: name 127.0.0.1 there, since the page has no password.
CMD ["codevqa", "demo", "--host", "0.0.0.0", "--port", "7860", "--no-browser"]
