# NetPIPE, which bounces messages of growing size between two processes; read by bench/mpi/run. For each size it
# repeats a trial a few times and tells the best one. Without perturbation: the sizes are powers of two, and one
# between each two of them.
CURVE=${CURVE:--l 1 -u 4194304 -p 0}
CURVE_MAX=${CURVE_MAX:-120}

points() { # NAME : of each line bytes and us; fails if there is none
    awk -v name="$1" '{ printf "%s %d %.3f\n", name, $1, $3 * 1e6 }' "$WORK/np" | grep .
}

do_curve_mpi() { rm -f "$WORK/np"; RANKS_MAX=$CURVE_MAX ranks "$(command -v NPopenmpi)" $CURVE -o "$WORK/np" > "$WORK/log" 2>&1 && points curve-mpi; }

do_curve_tcp() {
    rm -f "$WORK/np"; local rc=0 receiver
    ip netns exec $B timeout $CURVE_MAX NPtcp $CURVE -o /dev/null > /dev/null 2>&1 & receiver=$!
    await listens $B 5002 &&
        ip netns exec $A timeout $CURVE_MAX NPtcp -h 10.61.0.2 $CURVE -o "$WORK/np" > "$WORK/log" 2>&1 || rc=$?
    kill $receiver 2> /dev/null; wait $receiver 2> /dev/null
    [ $rc = 0 ] && points curve-tcp
}
listens() { ip netns exec $1 ss -Hltn "sport = :$2" | grep -q .; } # NAMESPACE PORT

# ── PVM: a daemon in each namespace, the second one started by the first, and a task beside each ───────
#
# The daemons exchange UDP datagrams. NetPIPE asks for a TCP connection between the tasks. Each namespace needs a name
# that PVM can look up, and a folder for PVM's sockets and logs.

# pvmd closes all descriptors that it may have, one by one, so the limit is low.
cat > "$WORK/pvm-in" << END
#!/bin/sh
n=\$1; shift; hostname \$n; mount --bind "$WORK/hosts" /etc/hosts; ulimit -n 1024
export PVM_TMP="$WORK/pvm-\$n" PVM_RSH="$WORK/pvm-rsh" PVM_ROOT=/usr/lib/pvm3 PVM_ALLOW_ROOT=1
exec "\$@"
END
printf '#!/bin/sh\nexec ip netns exec $1 unshare -u "%s/pvm-in" "$@"\n' "$WORK" > "$WORK/pvm-on" # NAMESPACE COMMAND...
printf '#!/bin/sh\nn=$1; shift; exec "%s/pvm-on" $n sh -c "$*"\n' "$WORK" > "$WORK/pvm-rsh" # HOST COMMAND
chmod +x "$WORK"/pvm-{in,on,rsh}

do_curve_pvm() {
    local rc=0 i daemon receiver a=${HOSTS% *} b=${HOSTS#* }
    printf '%s\n' "127.0.0.1 localhost" "$a $A" "$b $B" > "$WORK/hosts"; printf '%s\n' $A $B > "$WORK/pvm-hosts"
    rm -rf "$WORK/np" "$WORK"/pvm-{$A,$B}; mkdir "$WORK"/pvm-{$A,$B}
    "$WORK/pvm-on" $A pvmd -n$A "$WORK/pvm-hosts" > "$WORK/pvmd" 2>&1 & daemon=$!
    await test -e "$WORK/pvm-$B/pvmd.0" || rc=1
    "$WORK/pvm-on" $B timeout $CURVE_MAX $PREFIX NPpvm $CURVE -o /dev/null > "$WORK/receiver" 2>&1 & receiver=$!
    # The sender ends at once while there are not exactly two tasks.
    for ((i = 0; rc == 0 && i < 50; i++)); do
        "$WORK/pvm-on" $A timeout $CURVE_MAX $PREFIX NPpvm -h $B $CURVE -o "$WORK/np" > "$WORK/log" 2>&1 || rc=$?
        if ! grep -q 'Start a clean machine' "$WORK/log"; then break; fi
        rc=0; sleep 0.2
    done
    # The first daemon ends the other one.
    kill $receiver $daemon 2> /dev/null; wait $receiver $daemon 2> /dev/null
    [ $rc = 0 ] && points curve-pvm && return
    cat "$WORK/pvmd" "$WORK/receiver" "$WORK"/pvm-{$A,$B}/pvml.* >> "$WORK/log" 2> /dev/null; return 1
}
