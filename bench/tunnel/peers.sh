# The other tunnels of bench/tunnel/run, which sources this. Each NAME_up starts one, sets TO to the address of the
# far end and PIDS to the processes; each have_NAME says why one is left out.

wireguard_up() { # COMMAND... : of WireGuard in user space, but for the device
    local side
    for side in a b; do
        openssl genpkey -algorithm X25519 -out "$WORK/$side.pem" 2> /dev/null
        openssl pkey -in "$WORK/$side.pem" -outform DER | tail -c 32 | od -An -tx1 | tr -d ' \n' > "$WORK/$side.key"
        openssl pkey -in "$WORK/$side.pem" -pubout -outform DER | tail -c 32 | od -An -tx1 | tr -d ' \n' > "$WORK/$side.pub"
    done
    rm -f /var/run/wireguard/bench-wg-{a,b}.sock
    ip netns exec $A "$@" bench-wg-a > /dev/null 2>&1 & PIDS=$!
    ip netns exec $B "$@" bench-wg-b > /dev/null 2>&1 & PIDS="$PIDS $!"
    python3 "$HERE/wireguard.py" "$WORK"
    ip -n $A addr add 10.99.0.1/24 dev bench-wg-a; ip -n $A link set bench-wg-a mtu 1420 up
    ip -n $B addr add 10.99.0.2/24 dev bench-wg-b; ip -n $B link set bench-wg-b mtu 1420 up
    TO=10.99.0.2
}

have_boringtun() { # builds it if need be
    BORINGTUN=$PEERS/bin/boringtun-cli
    [ ! -x "$BORINGTUN" ] || return 0
    command -v cargo > /dev/null || { echo "boringtun: left out, cargo is not installed"; return 1; }
    cargo install --quiet --locked --root "$PEERS" --target-dir "$PEERS/target" boringtun-cli 2> "$WORK/cargo" && return 0
    echo "boringtun: left out, it cannot be built: $(grep -m1 error "$WORK/cargo")"; return 1
}

have_openvpn() { # since 2.6 it needs no authority for two peers that know each other's certificate
    command -v openvpn > /dev/null || { echo "OpenVPN: left out, it is not installed (apt-get install openvpn)"; return 1; }
    # It exits with 1 after its version.
    local version=$( (openvpn --version || true) | grep -om1 '[0-9]\+\.[0-9]\+')
    [ "$(printf '%s\n' "$version" 2.6 | sort -V | head -1)" = 2.6 ] ||
        { echo "OpenVPN: left out, version $version is older than 2.6"; return 1; }
}

openvpn_up() {
    local side process finger=() common
    for side in a b; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=bench-$side" \
            -keyout "$WORK/$side.ovpn.key" -out "$WORK/$side.ovpn.crt" 2> /dev/null
        finger+=("$(openssl x509 -in "$WORK/$side.ovpn.crt" -noout -fingerprint -sha256 | sed 's/.*=//')")
    done
    # The same MTU as WireGuard's; in user space, without the kernel's data channel.
    common=(--dev-type tun --proto udp4 --data-ciphers AES-256-GCM --tun-mtu 1420 --mssfix 0 --fast-io --verb 3)
    if [[ $(openvpn --help || true) == *disable-dco* ]]; then common+=(--disable-dco); fi
    ip netns exec $B openvpn --dev bench-ovpn-b --tls-server --dh none --local 192.0.0.2 "${common[@]}" \
        --cert "$WORK/b.ovpn.crt" --key "$WORK/b.ovpn.key" --peer-fingerprint "${finger[0]}" \
        --ifconfig 10.98.0.2 10.98.0.1 > "$WORK/openvpn-b" 2>&1 & PIDS=$!
    ip netns exec $A openvpn --dev bench-ovpn-a --tls-client --nobind --remote 192.0.0.2 1194 "${common[@]}" \
        --cert "$WORK/a.ovpn.crt" --key "$WORK/a.ovpn.key" --peer-fingerprint "${finger[1]}" \
        --ifconfig 10.98.0.1 10.98.0.2 > "$WORK/openvpn-a" 2>&1 & PIDS="$PIDS $!"
    for side in a b; do
        until grep -q 'Initialization Sequence Completed' "$WORK/openvpn-$side"; do
            for process in $PIDS; do
                kill -0 "$process" 2> /dev/null ||
                    { echo "OpenVPN: left out, it has ended: $(cat "$WORK"/openvpn-{a,b} | tail -3)"; return 1; }
            done
            sleep 0.1
        done
    done
    grep -q "Data Channel: .*AES-256-GCM" "$WORK/openvpn-a" || echo "OpenVPN: with another cipher than AES-256-GCM"
    TO=10.98.0.2
}
