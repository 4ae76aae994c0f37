#!/usr/bin/env bash
# Exit code 0 if the program is compatible or can be migrated; what was found is the job's summary.
set -uo pipefail
read -r -a more <<<"${ARGUMENTS:-}"
found=$(savepoints upgrade check --app "$APP" --from "$FROM" --query "$QUERY" "${more[@]}" 2>&1)
code=$?
case $code in
  0) verdict=compatible ;;
  3) verdict="needs migration" ;;
  16) verdict="incompatible or unknown" ;;
  *) verdict=failed ;;
esac
echo "verdict=$verdict" >>"$GITHUB_OUTPUT"
{
  echo "### State of \`$QUERY\`: $verdict"
  echo '```'
  echo "$found"
  echo '```'
} >>"$GITHUB_STEP_SUMMARY"
echo "$found"
[ "$code" -eq 3 ] && exit 0
exit "$code"
