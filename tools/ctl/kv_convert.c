/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl kv convert: a conversation that Colibri's GLM engine saved becomes a prefix file, without a manager. Model and
 * everything else that the state depends on are what the caller says: the saved file does not know.
 */
#include "tools/ctl/kv_words.h"

#include "base/file.h"
#include "base/places.h"
#include "kvstore/coli_kv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PRIVATE_MODE 0600 /* it holds a conversation */

_Static_assert(COLI_KV_MESSAGE_BYTES <= CTL_MESSAGE_BYTES / 2, "a message and the name before it fit");

static int fail(const char *what, int error, const char *reason, char message[CTL_MESSAGE_BYTES])
{
	(void)snprintf(message, CTL_MESSAGE_BYTES, "%.300s: %.600s", what, reason);
	return error;
}

/* As an engine with this environment finds it: its shards may lie in the directories of $CNRE_DIRS too. */
static int identify_model(const char *model, struct cnre_fingerprint *fingerprint, unsigned char payload[CNRE_DIGEST_BYTES],
			  char message[CTL_MESSAGE_BYTES])
{
	char reason[CTL_MESSAGE_BYTES / 2] = "";
	struct cnre_places *places;
	int r = cnre_places_open_list(&places, model, getenv(CNRE_PLACES_VARIABLE), reason, sizeof reason);

	if (r < 0)
		return fail(model, r, reason, message);
	r = cnre_places_identify(places, fingerprint, reason, sizeof reason);
	if (r == 0) {
		r = cnre_places_digest_payload(places, payload);
		(void)snprintf(reason, sizeof reason, "%s", strerror(-r));
	}
	(void)cnre_places_close(places);
	return r < 0 ? fail(model, r, reason, message) : 0;
}

static int identify(const struct kv_words *words, struct cnre_fingerprint *fingerprint, unsigned char payload[CNRE_DIGEST_BYTES],
		    struct kv_identity *ret_identity, char message[CTL_MESSAGE_BYTES])
{
	int r = identify_model(words->option[KV_OPTION_MODEL], fingerprint, payload, message);

	if (r < 0)
		return r;
	*ret_identity = (struct kv_identity){
		.model = fingerprint->identity,
		.payload = payload,
		.tokenizer = words->option[KV_OPTION_TOKENIZER],
		.chat_template = words->option[KV_OPTION_CHAT_TEMPLATE],
		.position = words->option[KV_OPTION_POSITION],
		.representation = words->option[KV_OPTION_REPRESENTATION],
		.salt = words->option[KV_OPTION_SALT],
		.version = words->version,
		.block_tokens = words->block_tokens,
	};
	return 0;
}

static int describe(const struct coli_kv *file, const struct kv_prefix_summary *summary, json_t **ret_answer)
{
	char root[2 * KV_KEY_BYTES + 1], key[2 * KV_KEY_BYTES + 1];

	*ret_answer = json_pack("{s:I, s:I, s:I, s:I, s:s, s:s}", "blocks", (json_int_t)summary->blocks, "tokens",
				(json_int_t)summary->tokens, "bytes", (json_int_t)summary->payload_bytes, "dropped",
				(json_int_t)coli_kv_dropped(file), "root",
				cnre_fingerprint_hex(summary->root, KV_KEY_BYTES, root), "key",
				cnre_fingerprint_hex(summary->leaf, KV_KEY_BYTES, key));
	return *ret_answer == NULL ? -ENOMEM : 0;
}

static int convert_into(const struct kv_words *words, const struct coli_kv *file, int out, json_t **ret_answer,
			char message[CTL_MESSAGE_BYTES])
{
	unsigned char payload[CNRE_DIGEST_BYTES];
	struct cnre_fingerprint fingerprint;
	struct kv_prefix_summary summary;
	struct kv_identity identity;
	char reason[COLI_KV_MESSAGE_BYTES];
	int r = identify(words, &fingerprint, payload, &identity, message);

	if (r < 0)
		return r;
	r = coli_kv_convert(file, &identity, out, &summary, reason);
	if (r < 0)
		return fail(words->plain[0], r, reason, message);
	if (fsync(out) < 0)
		return fail(words->plain[1], -errno, strerror(errno), message);
	return describe(file, &summary, ret_answer);
}

static int convert_opened(const struct kv_words *words, int in, json_t **ret_answer, char message[CTL_MESSAGE_BYTES])
{
	char reason[COLI_KV_MESSAGE_BYTES];
	struct coli_kv file;
	int out, r = coli_kv_open(&file, in, reason);

	if (r < 0)
		return fail(words->plain[0], r, reason, message);
	out = open(words->plain[1], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, PRIVATE_MODE);
	if (out < 0) {
		r = -errno;
		return fail(words->plain[1], r,
			    r == -EEXIST ? "is there: it is never written over; name another file or remove it"
					 : strerror(-r),
			    message);
	}
	r = convert_into(words, &file, out, ret_answer, message);
	(void)close(out);
	if (r < 0)
		(void)unlink(words->plain[1]);
	return r;
}

int kv_convert(const struct kv_words *words, json_t **ret_answer, char message[CTL_MESSAGE_BYTES])
{
	uint64_t bytes;
	int in = cnre_file_open(AT_FDCWD, words->plain[0], &bytes), r;

	if (in < 0)
		return fail(words->plain[0], in, in == -EINVAL ? "not a regular file" : strerror(-in), message);
	r = convert_opened(words, in, ret_answer, message);
	(void)close(in);
	return r;
}
