#!/bin/sh
# Runs inside the machine, started by run.sh: main.sh whole|sample [STEPS...]. The repository is at /repo, the test
# programs are at /tests, the corpus is at /vts and models at /models if there are any; all read-only.
here=/repo/tests/vm/guest
scope=$1
shift
. "$here/lib.sh"

# It moves programs, and starts the service manager anew.
case "$*" in *"enforcing "*) fail "enforcing comes last" ;; esac

add_users
step "the service manager starts"
rsb_hub --insecure-allow-all >/tmp/rsb_hub.log 2>&1 &
hub=$!
wait_until 20 hub_answers || fail "the service manager does not answer"
for steps in ${*:-serving storage programs memory fences conformance enforcing}; do
  . "$here/$steps.sh"
done
step "all done"
exit 0
