#!/bin/sh
# Follows the changes of verdicts with redis-cli alone: one JSON document on stdout for each.
# usage: consume_changes.sh [FILE] [OPTIONS OF redis-cli]...
# Keeps the id of the last one in FILE (changes.id): a run that was interrupted gets what it missed.
# Results are pushed, and follow the same way: redis-cli --csv psubscribe 'poll:results:*'
set -eu

file=${1:-changes.id}
[ $# -eq 0 ] || shift
last=$(cat "$file" 2>/dev/null || echo 0)
while :; do
    # Four lines for each: the key or nothing, the id, the field's name, the document.
    if ! entries=$(redis-cli --raw "$@" XREAD COUNT 100 BLOCK 5000 STREAMS poll:changes "$last"); then
        echo "Redis does not answer, trying again" >&2
        sleep 1
        continue
    fi
    while IFS= read -r line; do
        case $line in
            [0-9]*-[0-9]*) id=$line ;;
            '{'*)
                printf '%s\n' "$line"
                last=$id
                printf '%s\n' "$last" >"$file"
                ;;
        esac
    done <<ENTRIES
$entries
ENTRIES
done
