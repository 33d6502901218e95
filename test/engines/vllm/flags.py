"""Parses command lines as `vllm serve` does, settings given as JSON included. Reads [name, [arguments]], one a line; prints
what vLLM refuses."""

import json
import sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

parsed = 0
for line in sys.stdin:
    name, arguments = json.loads(line)
    try:
        validate_parsed_serve_args(make_arg_parser(FlexibleArgumentParser(exit_on_error=False)).parse_args(arguments))
        parsed += 1
    except (Exception, SystemExit) as problem:
        print(f"{name}: {type(problem).__name__}: {problem}")
print(f"parsed {parsed}")
