#!/usr/bin/env bash
# Runs `mooring check` for action.yml and writes the differences into the summary of the job.
set -u
options=(--timeout "${MOORING_CHECK_TIMEOUT:-60}")
[ -z "${MOORING_CHECK_CONFIG:-}" ] || options+=(--config "$MOORING_CHECK_CONFIG")
summary=${GITHUB_STEP_SUMMARY:-/dev/null}

output=$(mooring "${options[@]}" check 2>&1)
code=$?
printf '%s\n' "$output"
case $code in
  0) title="MCP servers match mooring.lock" ;;
  10) title="MCP servers differ from mooring.lock" ;;
  11) title="An MCP server could not be reached" ;;
  *) title="mooring check failed" ;;
esac
{
  printf '### %s\n\n' "$title"
  # Server text is untrusted: as an indented block, no line of it can end the block or become Markdown.
  printf '%s\n' "$output" | sed 's/^/    /'
} >> "$summary"
if [ "$code" = 11 ] && [ "${MOORING_CHECK_UNREACHABLE:-fail}" = warn ]; then
  printf '::warning::%s\n' "$title"
  exit 0
fi
[ "$code" = 0 ] || printf '::error::%s\n' "$title"
exit "$code"
