#!/usr/bin/env bash
# Holds a lease by way of `leasehold agent`: agent.sh SOCKET NAME
set -u
coproc AGENT { exec "${LEASEHOLD:-leasehold}" connect --socket "$1"; }
name=$2 until_ms=0 fence=

now_ms() { local up; read -r up _ </proc/uptime; up=${up/./}0; echo "$((10#$up))"; }
lost() { echo "the agent has gone, and the lease with it" >&2; exit 1; }

# Sends a line and reads up to its answer, which goes into $answer; what is pushed comes first.
ask() {
  local words
  [[ -v AGENT ]] && echo "$1" >&"${AGENT[1]}" || lost
  while read -r -a words <&"${AGENT[0]}"; do
    case ${words[0]} in
    HELD | !CERTAIN) fence=${words[2]#fence=} until_ms=${words[4]#until_ms=} ;;
    !LOST | !UNCERTAIN | !STOPPING | !BYE) until_ms=0 ;;
    esac
    [[ ${words[0]} == !* ]] || { answer=${words[*]}; return; }
  done
  lost
}

# Right before each effect; renews the time, too.
holds() { ask "HOLDS $name"; [[ $answer == HELD* && $(now_ms) -lt $until_ms ]]; }

ask "SESSION 10000"
ask "ACQUIRE $name 5000"
[[ $answer == HELD* ]] || { echo "$answer" >&2; exit 1; }
while holds; do
  echo "working under fence $fence"
  sleep 0.5 # half a second's work
done
