#!/bin/bash
# The daemon by curl, with a worker made of shell: refusals, guards, idempotency, verbs, streams.
. "$(dirname "$0")/lib.bash" "$1"
small='{"inputs":[],"initializers":[],"nodes":[],"outputs":["y"]}'

# ---- refusals
worker 'sleep 60 & wait'
start --compiler "$work/worker" --workers 1
r=$(submit $'{"model":\n {,}}')
is "malformed: code" bad_json "$(field 'd["code"]' <<<"$r")"
is "malformed: place" 2:3 "$(field 'd["where"]' <<<"$r")"
r=$(submit "{\"model\":$small,\"options\":{\"tils\":1}}" -w '\n%{http_code}')
is "unknown key: status" 422 "$(tail -n 1 <<<"$r")"
is "unknown key: pointer" /options/tils "$(head -n 1 <<<"$r" | field 'd["errors"][0]["pointer"]')"
r=$(submit '{"model":{"blob":"sha256:'"$(printf %064d 1)"'"}}')
is "unknown blob: code" missing "$(field 'd["code"]' <<<"$r")"
is "unknown blob: pointer" /model/blob "$(field 'd["where"]' <<<"$r")"
is "media type" 415 "$(api /v1/jobs -d x -H 'Content-Type: text/plain' -o /dev/null -w '%{http_code}')"
is "no body" 400 "$(api /v1/jobs -X POST -o /dev/null -w '%{http_code}')"
is "method" 405 "$(api /v1/queue -X DELETE -o /dev/null -w '%{http_code}')"
has "allow" 'Allow: GET, HEAD' "$(api /v1/queue -X DELETE -i)"
r=$(api '/v1/jobs?stat=queued' -w '\n%{http_code}')
is "unknown parameter: status" 400 "$(tail -n 1 <<<"$r")"
is "unknown parameter: name" stat "$(head -n 1 <<<"$r" | field 'd["where"]')"
is "parameter of another route" 400 "$(api '/_ping?wait=1s' -o /dev/null -w '%{http_code}')"
is "unknown job" 404 "$(api /v1/jobs/12345 -o /dev/null -w '%{http_code}')"
is "no job id" 404 "$(api /v1/jobs/..%20 -o /dev/null -w '%{http_code}')"
head -c 9000000 /dev/zero | tr '\0' ' ' >"$work/large"
is "too large" 413 "$(api /v1/jobs -H 'Content-Type: application/json' -H 'Expect:' \
    --data-binary @"$work/large" -o /dev/null -w '%{http_code}' 2>/dev/null)"

# ---- guards
is "zero byte" 'HTTP/1.1 400 Bad Request' "$(raw 'GET /v1%00x HTTP/1.1\r\nHost: x\r\n\r\n')"
is "raw zero byte" 'HTTP/1.1 400 Bad Request' "$(raw 'GET /_ping\0x HTTP/1.1\r\nHost: x\r\n\r\n')"
is "zero byte alone" 'HTTP/1.1 400 Bad Request' "$(raw 'GET /_ping\0 HTTP/1.1\r\nHost: x\r\n\r\n')"
is "slash" 'HTTP/1.1 400 Bad Request' "$(raw 'GET /v1%2fjobs HTTP/1.1\r\nHost: x\r\n\r\n')"
is "dots" 'HTTP/1.1 400 Bad Request' "$(raw 'GET /v1/../v1 HTTP/1.1\r\nHost: x\r\n\r\n')"
is "host" 'HTTP/1.1 400 Bad Request' "$(raw 'GET /v1 HTTP/1.1\r\n\r\n')"
is "two lengths" 'HTTP/1.1 400 Bad Request' "$(raw \
    'POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}')"
is "length and coding" 'HTTP/1.1 400 Bad Request' "$(raw \
    'POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n')"
is "coding" 'HTTP/1.1 400 Bad Request' "$(raw \
    'POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n')"
# head_of BYTES: status of a request with so long a header
head_of() {
    python3 -IS -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
s.connect(sys.argv[1])
try:
    s.sendall(b"GET /_ping HTTP/1.1\r\nHost: x\r\nX: " + b"p" * int(sys.argv[2]) + b"\r\n\r\n")
except OSError:
    pass
print(s.recv(4096).split()[1].decode())' "$sock" "$1"
}
is "long head" 200 "$(head_of 100000)"
is "head over the buffer" 431 "$(head_of 300000)"
is "ping" 'HTTP/1.1 200 OK' "$(raw 'GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n')"

# ---- idempotency
one=$(submit "{\"model\":$small}" -H 'Idempotency-Key: k1')
two=$(submit "{\"model\":$small}" -H 'Idempotency-Key: k1')
is "replay: body" "$one" "$two"
has "replay: header" 'Idempotency-Replayed: true' \
    "$(submit "{\"model\":$small}" -H 'Idempotency-Key: k1' -i)"
is "other body" 422 "$(submit "{\"model\":$small,\"name\":\"n\"}" -H 'Idempotency-Key: k1' \
    -o /dev/null -w '%{http_code}')"
is "one job" 1 "$(api /v1/jobs | field 'len(d["items"])')"

# ---- hold, release, cancel
h=$(submit "{\"model\":$small,\"hold\":true}" | field 'd["id"]')
is "held" held "$(api "/v1/jobs/$h" | field 'd["state"]')"
is "held: reason" held "$(api "/v1/jobs/$h" | field 'd["reason"]["code"]')"
is "release" queued "$(api "/v1/jobs/$h/release" -X POST | field 'd["state"]')"
is "hold" held "$(api "/v1/jobs/$h/hold" -X POST | field 'd["state"]')"
is "delete a waiting job" 409 "$(api "/v1/jobs/$h" -X DELETE -o /dev/null -w '%{http_code}')"
is "cancel" cancelled "$(api "/v1/jobs/$h/cancel" -X POST | field 'd["state"]')"
is "cancel again" cancelled "$(api "/v1/jobs/$h/cancel" -X POST | field 'd["state"]')"
is "hold an ended job" 409 "$(api "/v1/jobs/$h/hold" -X POST -o /dev/null -w '%{http_code}')"
has "stream of an ended job" '"event":"end"' "$(api "/v1/jobs/$h/events?follow=1" | tail -n 1)"
is "delete" 204 "$(api "/v1/jobs/$h" -X DELETE -o /dev/null -w '%{http_code}')"
is "deleted" 404 "$(api "/v1/jobs/$h" -o /dev/null -w '%{http_code}')"

# ---- a client that goes away in the middle of a stream
first=$(field 'd["id"]' <<<"$one")
curl -sS -N --max-time 1 --unix-socket "$sock" "http://ipud/v1/jobs/$first/events?follow=1" \
    >"$work/stream" 2>/dev/null
has "stream began" '"event":"hello"' "$(head -n 1 "$work/stream")"
is "no end without an end" 0 "$(grep -c '"event":"end"' "$work/stream")"
for _ in $(seq 60); do
    open=$(api /v1/metrics | sed -n 's/^ipud_streams_open //p')
    [ "$open" = 0 ] && break
    sleep 0.25
done
is "stream given up" 0 "$open"
is "job goes on" compiling "$(api "/v1/jobs/$first" | field 'd["state"]')"

# ---- clients that vanish at any point of a request leave nothing behind
python3 -IS - "$sock" "$first" <<'PYTHON'
import random, socket, sys
random.seed(1)
requests = [
    b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/jobs/%s/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n" % sys.argv[2].encode(),
    b"GET /v1/jobs/%s?wait=2s HTTP/1.1\r\nHost: x\r\n\r\n" % sys.argv[2].encode(),
    b"PUT /v1/blobs/%064d HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" % 7 + bytes(1500000),
    b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{",
]
for n in range(300):
    request = requests[n % len(requests)]
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(0.2)
    s.connect(sys.argv[1])
    try:
        s.sendall(request[:random.randrange(len(request) + 1)])
        if n % 3 == 0:
            s.recv(random.randrange(1, 2000))
    except OSError:
        pass
    s.close()
PYTHON
is "after 300 of them" OK "$(api /_ping)"
for _ in $(seq 60); do
    left=$(api /v1/metrics | sed -n 's/^ipud_http_inflight //p')
    [ "$left" = 1 ] && break
    sleep 0.25
done
is "requests left" 1 "$left"
is "uploads left" "" "$(ls "$work/state/staging" | grep tmp-)"

# ---- a cancelled compile leaves no process
child=$(pgrep -P "$pid" | head -n 1)
[ -n "$child" ] || fail "no worker runs"
is "worker leads its session" "$child" "$(ps -o sid= -p "$child" | tr -d ' ')"
fds=$(cd "/proc/$child/fd" && echo *)
has "worker's descriptors" "0 1 2 3 4 5" "$fds"
for fd in $fds; do
    case $(readlink "/proc/$child/fd/$fd") in */worker) continue ;; esac # the shell's own script
    [ "$fd" -le 5 ] || fail "worker has descriptor $fd: $(readlink "/proc/$child/fd/$fd")"
done
is "worker's environment" "LANG=C PATH=/usr/bin:/bin" \
    "$(tr '\0' '\n' <"/proc/$child/environ" | sort | paste -sd ' ')"
api "/v1/jobs/$first/cancel" -X POST >/dev/null
is "compile cancelled" cancelled "$(api "/v1/jobs/$first?wait=20s" | field 'd["state"]')"
for _ in $(seq 20); do # killed with it; the system may take a moment to bury them
    left=$(ps -o stat=,args= -s "$child" | grep -v '^Z')
    [ -z "$left" ] && break
    sleep 0.05
done
is "no survivor" "" "$left"

# ---- blobs
printf 'hello' >"$work/blob"
d=$(sha256sum "$work/blob" | cut -c1-64)
is "no blob yet" 404 "$(api "/v1/blobs/$d" -I -o /dev/null -w '%{http_code}')"
is "put" 201 "$(api "/v1/blobs/$d" -T "$work/blob" -o /dev/null -w '%{http_code}')"
is "put again" 200 "$(api "/v1/blobs/sha256:$d" -T "$work/blob" -o /dev/null -w '%{http_code}')"
is "head" 200 "$(api "/v1/blobs/$d" -I -o /dev/null -w '%{http_code}')"
is "get" hello "$(api "/v1/blobs/$d")"
is "not modified" 304 "$(api "/v1/blobs/$d" -H "If-None-Match: \"$d\"" -o /dev/null -w '%{http_code}')"
is "wrong digest" digest_mismatch "$(api "/v1/blobs/$(printf %064d 2)" -T "$work/blob" | field 'd["code"]')"
is "no digest" 400 "$(api /v1/blobs/xyz -T "$work/blob" -o /dev/null -w '%{http_code}')"
head -c 40000000 /dev/urandom >"$work/blob"
d=$(sha256sum "$work/blob" | cut -c1-64)
is "large put" 201 "$(api "/v1/blobs/$d" -T "$work/blob" -o /dev/null -w '%{http_code}')"
api "/v1/blobs/$d" | cmp -s - "$work/blob" || fail "large blob came back changed"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$work"
    chmod 666 "$sock"
    as="setpriv --reuid 1234 --regid 1234 --clear-groups curl -s --unix-socket $sock"
    is "another user" 1234 "$($as http://ipud/v1/whoami | field 'd["uid"]')"
    is "blob of another" 404 "$($as -o /dev/null -w '%{http_code}' "http://ipud/v1/blobs/$d")"
    is "job of another" 404 "$($as -o /dev/null -w '%{http_code}' "http://ipud/v1/jobs/$first")"
    is "cancel of another" 404 "$($as -X POST -o /dev/null -w '%{http_code}' "http://ipud/v1/jobs/$first/cancel")"
    is "list of another" 403 "$($as -o /dev/null -w '%{http_code}' "http://ipud/v1/jobs?user=*")"
    is "reset" 403 "$($as -X POST -o /dev/null -w '%{http_code}' http://ipud/v1/device/reset)"
    # ---- users take turns: who queued late and has used nothing goes before the other's heap
    for n in $(seq 12); do
        submit "{\"model\":$small,\"name\":\"heap $n\"}" -o /dev/null
    done
    late=$($as -H 'Content-Type: application/json' -d "{\"model\":$small,\"name\":\"late\"}" \
        http://ipud/v1/jobs | field 'd["id"]')
    for _ in 1 2; do
        busy=$(api "/v1/jobs?state=compiling" | field 'd["items"][0]["id"]')
        api "/v1/jobs/$busy/cancel" -X POST -o /dev/null
        api "/v1/jobs/$busy?wait=10s" -o /dev/null
        sleep 0.3
        [ "$(api "/v1/jobs/$late" | field 'd["started"] is not None')" = true ] && break
    done
    is "the late one has started" true "$(api "/v1/jobs/$late" | field 'd["started"] is not None')"
    is "own list" 1 "$($as http://ipud/v1/jobs | field 'len(d["items"])')"
fi
stop
finish
