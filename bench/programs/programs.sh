# The programs of bench/programs/run. Each has a port, what it needs, a text that can be read in its packets when nothing
# encrypts them, a server and an exchange. `server COMMAND...` and `client COMMAND...` start them where the way of the
# row wants them; HOST is the server as the client knows it. An exchange succeeds if what has arrived is what was sent,
# and sets BYTES.

PROGRAMS_ALL="curl-nginx redis postgresql iperf3 rsync ssh rsync-ssh asyncio go musl"
declare -A PORT=([curl-nginx]=80 [redis]=6379 [postgresql]=5432 [iperf3]=5201 [rsync]=873 [ssh]=22 [rsync-ssh]=22
    [asyncio]=7001 [go]=7002 [musl]=7003)
declare -A NEEDS=([curl-nginx]="curl nginx" [redis]="redis-server redis-cli" [postgresql]="psql setpriv"
    [iperf3]=iperf3 [rsync]=rsync [ssh]="ssh sshd ssh-keygen" [rsync-ssh]="rsync ssh sshd ssh-keygen" [go]=go [musl]=musl-gcc)
# ssh encrypts. What its server says first can be read.
declare -A MARKERS=([ssh]=SSH-2.0- [rsync-ssh]=SSH-2.0-)
POSTGRES=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -1) || POSTGRES=$(dirname "$(command -v postgres)" 2> /dev/null) || true
# PostgreSQL does not run as root.
UNPRIVILEGED=(setpriv --reuid=65534 --regid=65534 --clear-groups)
SSHD=$(command -v sshd || true)

# ── Data, and what the servers need ────────────────────────────────────────────────────────────────────

prepare() { # for the programs in HAVE
    local program
    # A line holds the marker: every packet of the data has it whole.
    awk -v marker="$MARKER" 'BEGIN { for (i = 0; i < 40000; i++) printf "%06d %s\n", i, marker }' > "$WORK/data"
    SIZE=$(stat -c %s "$WORK/data")
    for program in $HAVE; do if declare -F "prepare_$program" > /dev/null; then "prepare_$program"; fi; done
}
prepare_curl-nginx() {
    mkdir "$WORK/www" "$WORK/nginx"; cp "$WORK/data" "$WORK/www/data"
    local temporary; temporary=$(printf '%s_temp_path '"$WORK"'/nginx; ' client_body proxy fastcgi uwsgi scgi)
    echo "user root; daemon off; master_process off; pid $WORK/nginx/pid; error_log /dev/null; events {}
        http { access_log off; $temporary root $WORK/www; server { listen 80; } }" > "$WORK/nginx.conf"
}
prepare_postgresql() {
    mkdir "$WORK/postgres"; chown 65534:65534 "$WORK/postgres"
    "${UNPRIVILEGED[@]}" "$POSTGRES/initdb" -D "$WORK/postgres" -U postgres -A trust --no-sync --locale=C > "$WORK/log" 2>&1 || { cat "$WORK/log" >&2; return 1; }
    echo 'host all all 0.0.0.0/0 trust' > "$WORK/postgres/pg_hba.conf"
}
prepare_rsync() { # A tree with a large file and small ones.
    local i
    if [ -d "$WORK/tree" ]; then return; fi
    mkdir -p "$WORK/tree/small"; cp "$WORK/data" "$WORK/tree/data"
    for ((i = 0; i < 20; i++)); do head -c $((i * 500)) "$WORK/data" > "$WORK/tree/small/$i"; done
    TREE=$(find "$WORK/tree" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
    printf 'uid = root\ngid = root\nuse chroot = no\n[tree]\npath = %s\n[in]\npath = %s\nread only = no\n' "$WORK/tree" "$WORK/in" > "$WORK/rsyncd.conf"
}
prepare_ssh() {
    local name
    if [ -d "$WORK/ssh" ]; then return; fi
    mkdir "$WORK/ssh"
    for name in host user; do ssh-keygen -q -t ed25519 -N '' -f "$WORK/ssh/$name"; done
    # sshd wants it, and the package's service makes it.
    if [ ! -d /run/sshd ]; then mkdir -p /run/sshd; MADE_RUN_SSHD=yes; fi
    printf '%s\n' 'Port 22' "HostKey $WORK/ssh/host" "AuthorizedKeysFile $WORK/ssh/user.pub" 'StrictModes no' 'UsePAM no' \
        'PidFile none' 'PermitRootLogin yes' 'UseDNS no' > "$WORK/ssh/server"
    printf '%s\n' 'Host *' "IdentityFile $WORK/ssh/user" 'IdentitiesOnly yes' 'User root' 'BatchMode yes' \
        'StrictHostKeyChecking no' 'UserKnownHostsFile /dev/null' 'LogLevel ERROR' > "$WORK/ssh/client"
}
prepare_rsync-ssh() { prepare_rsync; prepare_ssh; }
prepare_go() { CGO_ENABLED=0 go build -o "$WORK/go" "$HERE/exchange.go"; }
prepare_musl() { musl-gcc -static -O2 -Wall -o "$WORK/musl" "$HERE/exchange.c"; }

# ── Servers ────────────────────────────────────────────────────────────────────────────────────────────

serve_curl-nginx() { server nginx -c "$WORK/nginx.conf"; }
serve_redis() { server redis-server --save '' --dir "$WORK" --protected-mode no --bind 0.0.0.0 --port 6379; }
serve_postgresql() {
    server "${UNPRIVILEGED[@]}" "$POSTGRES/postgres" -D "$WORK/postgres" -p 5432 \
        -c listen_addresses=0.0.0.0 -c fsync=off -c unix_socket_directories=
    await grep -q 'ready to accept connections' "$WORK/server.log"
}
serve_iperf3() { rm -f "$WORK/arrived"; server iperf3 -s -1 -F "$WORK/arrived"; }
serve_rsync() { server rsync --daemon --no-detach --port=873 --config="$WORK/rsyncd.conf"; }
serve_ssh() { server "$SSHD" -D -f "$WORK/ssh/server"; }
serve_rsync-ssh() { serve_ssh; }
serve_asyncio() { server "$PYTHON" "$HERE/exchange.py" serve 7001; }
serve_go() { server "$WORK/go" serve 7002; }
serve_musl() { server "$WORK/musl" serve 7003; }

# ── Exchanges ──────────────────────────────────────────────────────────────────────────────────────────

exchange_curl-nginx() { # two pages in one connection
    BYTES=$((2 * SIZE))
    client curl -sS -m 25 "http://$HOST/data" "http://$HOST/data" > "$WORK/got" && cat "$WORK/data" "$WORK/data" | cmp - "$WORK/got"
}
exchange_redis() { # a value is set and got; redis-cli adds the end of a line
    BYTES=$((2 * SIZE))
    client redis-cli -h "$HOST" -x set key < "$WORK/data" > "$WORK/got" && grep -qx OK "$WORK/got" &&
        client redis-cli -h "$HOST" get key > "$WORK/got" && (cat "$WORK/data"; echo) | cmp - "$WORK/got"
}
exchange_postgresql() { # a table is filled and read
    BYTES=$((2 * SIZE))
    client psql -XAtq -v ON_ERROR_STOP=1 -h "$HOST" -U postgres -c 'drop table if exists t; create table t (x text)' \
        -c "\\copy t from '$WORK/data'" -c 'select x from t order by x' > "$WORK/got" && cmp "$WORK/data" "$WORK/got"
}
# A client of iperf3 says that it has ended when data is on its way, and the server closes its file: what it has
# written is the beginning. Little is on its way at this rate. With -F, iperf3 3.12 loses what the kernel has not taken of
# a block (it reads the next one over it), so a block must fit into an empty socket buffer.
exchange_iperf3() {
    client iperf3 -c "$HOST" -F "$WORK/data" -n "$SIZE" -l 4600 -b 20M && await ended $SERVER
    BYTES=$(stat -c %s "$WORK/arrived" || echo 0)
    [ "$BYTES" -ge $((SIZE / 2)) ] && cmp -n "$BYTES" "$WORK/data" "$WORK/arrived"
}
trees() { # PULL PUSH RSYNC-OPTION... : a tree is copied to the client, and from it to the server
    BYTES=$((2 * TREE)); rm -rf "$WORK/copy" "$WORK/in"; mkdir "$WORK/in"
    client rsync -a --timeout=25 "${@:3}" "$1" "$WORK/copy/" && client rsync -a --timeout=25 "${@:3}" "$WORK/copy/" "$2" &&
        diff -r "$WORK/tree" "$WORK/copy" && diff -r "$WORK/tree" "$WORK/in"
}
exchange_rsync() { trees "rsync://$HOST/tree/" "rsync://$HOST/in/"; }
exchange_ssh() { # both directions at the same time, and the status of the far command
    local status=0; BYTES=$((2 * SIZE))
    client ssh -F "$WORK/ssh/client" "$HOST" 'cat; exit 7' < "$WORK/data" > "$WORK/got" || status=$?
    [ $status = 7 ] && cmp "$WORK/data" "$WORK/got"
}
exchange_rsync-ssh() { trees "$HOST:$WORK/tree/" "$HOST:$WORK/in/" -e "ssh -F $WORK/ssh/client"; }
exchange_asyncio() { BYTES=$((2 * SIZE)); client "$PYTHON" "$HERE/exchange.py" "$HOST" 7001 "$WORK/data"; }
exchange_go() { BYTES=$((2 * SIZE)); client "$WORK/go" "$HOST" 7002 "$WORK/data"; }
exchange_musl() { BYTES=$((2 * SIZE)); client "$WORK/musl" "$HOST" 7003 "$WORK/data"; }

# ── Versions ───────────────────────────────────────────────────────────────────────────────────────────

version() { # PROGRAM
    case $1 in
        curl-nginx) curl --version | awk 'NR == 1 { print $1, $2 }'; nginx -v 2>&1 | sed 's/.*: //; s,/, ,';;
        redis) redis-server --version | sed 's/.*v=\([^ ]*\).*/redis \1/';;
        postgresql) "$POSTGRES/postgres" --version | awk '{ print "PostgreSQL", $3 }';;
        iperf3) iperf3 --version | awk 'NR == 1 { print $1, $2 }';;
        rsync) rsync --version | awk 'NR == 1 { print $1, $3 }';;
        ssh) ssh -V 2>&1 | sed 's/[ ,].*//; s/_/ /';;
        asyncio) "$PYTHON" --version;;
        go) go version | awk '{ print $3 }' | sed 's/go/Go /';;
        musl) (compgen -G '/lib/ld-musl-*.so.1' | head -1 | xargs -I {} sh -c '{} 2>&1 || true') | sed -n 's/Version/musl/p';;
    esac
}
