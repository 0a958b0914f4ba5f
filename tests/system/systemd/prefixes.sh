# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # of driver.sh: unit, model, socket
# Sourced by driver.sh. The store of KV prefixes under the installed unit: its folder lies in the StateDirectory, blocks stay
# in memory over a restart, and are found in their files after a stop.

prompt=$(seq -s ' ' 1 200)
prefix_blocks=4 # 200 tokens in blocks of 64
prefix_files() { find /var/lib/cnre/kv -type f -path '*/u*' ! -path '*/quarantine/*' 2>/dev/null | wc -l; }
has_files() { [ "$(prefix_files)" -ge "$prefix_blocks" ]; }

run_prompt() # prints matched tokens, then the generated ones
{
	as_member timeout 20 cnre-olmoe --model "$model" --tokens "$prompt" --steps 1 --threads 1 --cache mmap --kv cnre --json \
		--socket "$socket" 2>>prefix.err | sed 's/.*"tokens":\(\[[^]]*\]\).*"matched_tokens":\([0-9]*\).*/\2 \1/'
}

publish_prefix()
{
	first_answer=$(run_prompt)
	same 'prefixes: nothing is known at first' "${first_answer%% *}" 0
	check 'prefixes: blocks are saved in the state directory' wait_for has_files
	same 'prefixes: whose folder is nobody'"'"'s but the service'"'"'s' "$(stat -c %U:%a /var/lib/cnre/kv)" cnre:700
	same 'prefixes: status has no complaint of them' "$(cnrectl --socket "$socket" status | grep -c '^DEGRADED.*KV')" 0
}

finds_prefix() # after what
{
	local answer
	answer=$(run_prompt)
	same "$1: tokens of the prefix that were not computed again" "${answer%% *}" 199
	same "$1: the same token follows" "${answer#* }" "${first_answer#* }"
}
