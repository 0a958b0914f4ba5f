/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of a checkpoint, or another JSON file beside it: bounded, duplicate keys refused, values asked for one by
 * one with the range they must have. Some families nest the text model's values in text_config, and have others for
 * pictures or sound at the top; a number is looked up there first, as their engines do, and a text at the top.
 */
#ifndef CNRE_MODEL_CONFIG_H
#define CNRE_MODEL_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#define MODEL_CONFIG_MESSAGE_BYTES 512

struct model_config;

/* 0, or -ENOENT, -EBADMSG (not JSON, or no object), -E2BIG, -ENOMEM, errors of open and read; message says which. */
int model_config_open(struct model_config **ret_config, int directory_fd, char message[MODEL_CONFIG_MESSAGE_BYTES]);
/* The same for a file of another name. It must live as long as the config. */
int model_config_open_file(struct model_config **ret_config, int directory_fd, const char *name,
			   char message[MODEL_CONFIG_MESSAGE_BYTES]);
struct model_config *model_config_close(struct model_config *config);

/* The string at key, as long as the config is open; NULL: none there. */
const char *model_config_text(const struct model_config *config, const char *key);

int model_config_has(const struct model_config *config, const char *key);

/* A whole number from least to max; 0, or -EBADMSG (absent, of another type, or out of range) and the message. */
int model_config_count(const struct model_config *config, const char *key, uint32_t least, uint32_t max,
		       uint32_t *ret_value, char message[MODEL_CONFIG_MESSAGE_BYTES]);

#endif
