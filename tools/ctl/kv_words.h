/* SPDX-License-Identifier: Apache-2.0 */
/* The words of cnrectl kv, and what is made of a `.coli_kv` without a manager. */
#ifndef CNRE_TOOLS_CTL_KV_WORDS_H
#define CNRE_TOOLS_CTL_KV_WORDS_H

#include "tools/ctl/verb.h"

#define KV_WORDS_PLAIN_MAX 2

enum kv_action { KV_SHOW, KV_EXPORT, KV_IMPORT, KV_CONVERT };

enum kv_option {
	KV_OPTION_NAMESPACE,
	KV_OPTION_MODEL,
	KV_OPTION_POSITION,
	KV_OPTION_REPRESENTATION,
	KV_OPTION_TOKENIZER,
	KV_OPTION_CHAT_TEMPLATE,
	KV_OPTION_SALT,
	KV_OPTION_VERSION,
	KV_OPTION_BLOCK_TOKENS,
	KV_OPTION_COUNT,
};

struct kv_words {
	enum kv_action action;
	const char *plain[KV_WORDS_PLAIN_MAX]; /* of export: key, file; of import: file; of convert: from, to */
	const char *option[KV_OPTION_COUNT];   /* NULL: not given */
	uint32_t version, block_tokens;        /* of convert */
};

/* argv[0] is the verb. 0, or -EINVAL with the reason in message; *ret_words is set on success only. */
int kv_words_parse(int argc, char *const *argv, struct kv_words *ret_words, char message[CTL_MESSAGE_BYTES]);
int kv_words_take_option(int argc, char *const *argv, const char *name);

/* Writes the file that the words name. 0 and the answer, or -errno with a message; then there is no such file. */
int kv_convert(const struct kv_words *words, json_t **ret_answer, char message[CTL_MESSAGE_BYTES]);

#endif
