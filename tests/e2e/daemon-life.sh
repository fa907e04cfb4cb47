#!/bin/bash
# The daemon's life, with workers made of shell: kill -9 and restart, stop, failing workers, locks.
. "$(dirname "$0")/lib.bash" "$1"
small='{"inputs":[],"initializers":[],"nodes":[],"outputs":["y"]}'

worker 'sleep 60 & wait'
start --compiler "$work/worker" --workers 1

# ---- killed with jobs in the queue: all are there afterwards, once
for n in $(seq 60); do
    submit "{\"model\":$small,\"name\":\"job $n\"}" | field 'd["id"]' &
done >"$work/ids"
wait $(jobs -p | grep -v "^$pid\$")
sort "$work/ids" >"$work/sent"
kill -9 "$pid"
wait "$pid" 2>/dev/null
start --compiler "$work/worker" --workers 1
api '/v1/jobs?limit=500' | python3 -c '
import json, sys
for j in json.load(sys.stdin)["items"]:
    if (j["name"] or "").startswith("job "):
        print(j["id"])' | sort >"$work/found"
is "accepted" 60 "$(wc -l <"$work/sent")"
cmp -s "$work/sent" "$work/found" || fail "jobs were lost or doubled: $(diff "$work/sent" "$work/found" | head -n 4)"
states=$(api '/v1/jobs?limit=500' | field 'sorted({j["state"] for j in d["items"]})')
has "one was active" interrupted "$states"
has "others wait" queued "$states"
i=$(api '/v1/jobs?state=interrupted' | field 'd["items"][0]["id"]')
is "cause" daemon_restarted "$(api "/v1/jobs/$i/events" | grep '"cause"' | field 'd["fields"]["cause"]')"

# ---- stop while somebody follows: the stream is cut, not ended; waiting polls are answered
q=$(api '/v1/jobs?state=queued' | field 'd["items"][-1]["id"]')
api "/v1/jobs/$q/events?follow=1" -N >"$work/stream" 2>&1 &
follower=$!
api "/v1/jobs/$q?wait=60s" >"$work/poll" &
poller=$!
sleep 0.7
stop
wait $follower $poller
has "stream began" '"event":"hello"' "$(head -n 1 "$work/stream")"
is "cut stream" 0 "$(grep -c '"event":"end"' "$work/stream")"
has "poll answered" "$q" "$(cat "$work/poll")"

# ---- workers that fail
worker 'kill -SEGV $$'
start --compiler "$work/worker"
j=$(submit "{\"model\":$small,\"name\":\"crash\"}" | field 'd["id"]')
is "crash" compile_crashed "$(api "/v1/jobs/$j?wait=30s" | field 'd["error"]["code"]')"
stop
worker 'echo "{\"event\":\"error\",\"message\":\"m\",\"fields\":{},\"code\":\"unsupported_op\",\"detail\":\"no Foo\",\"where\":\"/nodes/0\"}" >&5; exit 9'
start --compiler "$work/worker"
j=$(submit "{\"model\":$small}" | field 'd["id"]')
r=$(api "/v1/jobs/$j?wait=30s")
is "worker's error" "unsupported_op /nodes/0 no Foo" "$(field 'd["error"]["code"]+" "+d["error"]["where"]+" "+d["error"]["detail"]' <<<"$r")"
has "end of its stream" unsupported_op "$(api "/v1/jobs/$j/events?follow=1" | tail -n 1)"
stop
worker 'echo garbage >&5; sleep 30'
start --compiler "$work/worker"
j=$(submit "{\"model\":$small}" | field 'd["id"]')
is "garbage" protocol "$(api "/v1/jobs/$j?wait=30s" | field 'd["error"]["code"]')"
stop
worker 'sleep 30'
start --compiler "$work/worker" --workers 1
l=$(submit "{\"model\":$small}" | field 'd["id"]')
k=$(submit "{\"model\":$small,\"limits\":{\"queue_ms\":1}}" | field 'd["id"]')
is "queue limit" "timed_out timeout" "$(api "/v1/jobs/$k?wait=20s" | field 'd["state"]+" "+d["error"]["code"]')"
is "long poll" 200 "$(api "/v1/jobs/$l?wait=300ms" -o /dev/null -w '%{http_code}')"
api "/v1/jobs/$l/cancel" -X POST -o /dev/null
j=$(submit "{\"model\":$small,\"limits\":{\"compile_ms\":300}}" | field 'd["id"]')
is "time limit" "timed_out compile_timeout" "$(api "/v1/jobs/$j?wait=20s" | field 'd["state"]+" "+d["error"]["code"]')"

# ---- a second daemon on the state directory
"$bin/ipud" --device sim --state-dir "$work/state" --socket "$work/sock2" --lock "$work/lock2" \
    >"$work/second" 2>&1
is "second daemon: status" 6 $?
has "second daemon: pid" "pid $pid" "$(cat "$work/second")"
# ---- a second daemon on the device
timeout 20 "$bin/ipud" --device sim --state-dir "$work/state2" --socket "$work/sock2" \
    --lock "$work/none/lock" >"$work/log2" 2>&1
is "lock in a missing folder: exit" 13 $?
has "lock in a missing folder: text" "$work/none/lock" "$(cat "$work/log2")"
timeout 20 "$bin/ipud" --device sim --state-dir "$work/state2" --socket "$work/sock2" \
    --lock "$work/lock3" --loader "$work/log2" >"$work/log3" 2>&1
is "loader that is none: exit" 2 $?
has "loader that is none: text" "ELF header" "$(cat "$work/log3")"
"$bin/ipud" --device sim --state-dir "$work/state2" --socket "$work/sock2" --lock "$work/lock" \
    --no-wait >"$work/second" 2>&1
is "device held: status" 6 $?
has "device held: pid" "$pid" "$(cat "$work/second")"
"$bin/ipud" --device sim --state-dir "$work/state2" --socket "$work/sock2" --lock "$work/lock" \
    >"$work/second" 2>&1 &
second=$!
for _ in $(seq 100); do
    ready=$(curl -s --unix-socket "$work/sock2" http://ipud/v1/health/ready)
    case $ready in *device_lock*"$pid"*) break ;; esac
    sleep 0.1
done
has "waiting: condition" device_lock "$ready"
has "waiting: holder" "$pid" "$ready"
is "waiting: live" 200 "$(curl -s --unix-socket "$work/sock2" -o /dev/null -w '%{http_code}' \
    http://ipud/v1/health/live)"
kill -9 "$pid"
wait "$pid" 2>/dev/null
pid=
for _ in $(seq 100); do
    ready=$(curl -s --unix-socket "$work/sock2" http://ipud/v1/health/ready)
    case $ready in *'"ready":true'*) break ;; esac
    sleep 0.1
done
has "lock is free after a kill" '"ready":true' "$ready"
kill -TERM $second
wait $second
is "exit of the second" 0 $?

finish
