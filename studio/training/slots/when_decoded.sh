#!/bin/bash
# when_decoded.sh CACHE COUNT COMMAND...: wait until so many corpus parts are decoded, then become the command.
cache=$1 count=$2; shift 2
until [ "$(ls "$cache"/*.json.gz 2>/dev/null | wc -l)" -ge "$count" ]; do sleep 0.5; done
exec "$@"
