/* SPDX-License-Identifier: Apache-2.0 */
/* An expert's tensors to its parts; see cut.h. */
#include "model/cut.h"

#include "base/check.h"
#include "base/message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 256

/* One tensor of weights as this expert has it, and that of its scales. */
struct pair {
	const struct found *weight, *scale; /* scale NULL: none is there */
	uint32_t slices;                    /* experts that a shared tensor is cut into */
	uint32_t slice;                     /* which of them */
};

static uint32_t extent(const struct family_extents *extents, uint8_t which)
{
	return which == FAMILY_HIDDEN ? extents->hidden : extents->intermediate;
}

/* ---- does an encoding fit? ---- */

/* The encoding of a tensor's matrices, and that of the last of them, which is nearly always the same. */
struct mix {
	struct encoding first, last;
};

/* What an encoding makes of a tensor: its parts, and their bytes in all. */
struct measure {
	struct model_part_shape weight[FAMILY_BLOCKS_MAX], scale[FAMILY_BLOCKS_MAX];
	uint64_t weight_bytes, scale_bytes;
	uint32_t rows, columns; /* of a tensor that shows them: columns 0 where its matrices have different ones */
};

static void take_measure(const struct cut *cut, const struct family_tensor *tensor, const struct mix *mix,
			 const struct pair *pair, struct measure *measure)
{
	memset(measure, 0, sizeof *measure);
	for (uint32_t i = 0; i < tensor->block_count; i++) {
		const struct encoding *encoding = i + 1 < tensor->block_count ? &mix->first : &mix->last;
		uint32_t rows = extent(cut->extents, tensor->block[i].rows);
		uint32_t columns = extent(cut->extents, tensor->block[i].columns);

		encoding_weight_part(encoding, rows, columns, pair->weight->dtype, &measure->weight[i]);
		measure->weight_bytes += measure->weight[i].bytes;
		measure->rows += rows;
		measure->columns = i > 0 && measure->columns != measure->weight[i].columns ? 0
											   : measure->weight[i].columns;
		if (encoding->scales == ENCODING_NO_SCALES)
			continue;
		encoding_scale_part(encoding, rows, columns, pair->scale == NULL ? MODEL_F32 : pair->scale->dtype,
				    &measure->scale[i]);
		measure->scale_bytes += measure->scale[i].bytes;
	}
}

static int has_bytes(const struct found *found, const struct pair *pair, uint64_t bytes)
{
	return found->is_shared ? found->bytes % pair->slices == 0 && found->bytes / pair->slices == bytes
				: found->bytes == bytes;
}

/*
 * A transposed matrix has the bytes of the right one, so where a stored element is a weight its shape must be right. Packed
 * rows are stored in shapes of every kind.
 */
static int has_shape(const struct found *found, const struct pair *pair, const struct encoding *encoding,
		     const struct measure *measure)
{
	uint64_t rows = found->is_shared ? (uint64_t)measure->rows * pair->slices : measure->rows;

	if (encoding->weights != 1 || encoding->elements != 1 || measure->columns == 0)
		return 1;
	if (found->rank == 2)
		return found->dimension[0] == rows && found->dimension[1] == measure->columns;
	if (found->rank == 3 && found->is_shared)
		return found->dimension[0] == pair->slices && found->dimension[1] == measure->rows &&
		       found->dimension[2] == measure->columns;
	return 1;
}

static int fits(const struct family_tensor *tensor, const struct encoding *encoding, const struct pair *pair,
		const struct measure *measure)
{
	if ((encoding->stored & ENCODING_STORED(pair->weight->dtype)) == 0 ||
	    !has_bytes(pair->weight, pair, measure->weight_bytes) || !has_shape(pair->weight, pair, encoding, measure))
		return 0;
	if (encoding->scales == ENCODING_NO_SCALES)
		return pair->scale == NULL;
	if (encoding->scales == ENCODING_TAG && tensor->block_count > 1)
		return 0;
	return pair->scale != NULL && (encoding->scale_stored & ENCODING_STORED(pair->scale->dtype)) != 0 &&
	       has_bytes(pair->scale, pair, measure->scale_bytes);
}

static struct mix uniform_mix(const struct cut *cut, const struct encoding *encoding)
{
	struct mix mix = {.first = encoding_set_group(encoding, cut->extents->group)};

	mix.last = mix.first;
	return mix;
}

/* Another encoding for the last matrix of a tensor of several. The scales of both lie in one tensor, and so are of one kind. */
static int choose_mixed(const struct cut *cut, const struct family_layout *layout, const struct family_tensor *tensor,
			const struct pair *pair, struct mix *ret_mix)
{
	struct measure measure;
	struct mix mix;

	if (cut->family->last_encodings == NULL || tensor->block_count < 2)
		return 0;
	for (uint32_t i = 0; layout->encodings[i] != NULL; i++)
		for (uint32_t k = 0; cut->family->last_encodings[k] != NULL; k++) {
			mix = uniform_mix(cut, layout->encodings[i]);
			mix.last = encoding_set_group(cut->family->last_encodings[k], cut->extents->last_group);
			take_measure(cut, tensor, &mix, pair, &measure);
			if (fits(tensor, &mix.first, pair, &measure)) {
				*ret_mix = mix;
				return 1;
			}
		}
	return 0;
}

/* Sets the first that fits. 1 set, 0 none fits, -1 it had to be the only one and is not. */
static int choose_encoding(const struct cut *cut, const struct family_layout *layout,
			   const struct family_tensor *tensor, const struct pair *pair, struct mix *ret_mix)
{
	struct measure measure;
	struct mix mix;
	int found = 0;

	for (uint32_t i = 0; layout->encodings[i] != NULL; i++) {
		mix = uniform_mix(cut, layout->encodings[i]);
		take_measure(cut, tensor, &mix, pair, &measure);
		if (!fits(tensor, &mix.first, pair, &measure))
			continue;
		if (found)
			return -1;
		*ret_mix = mix;
		found = 1;
		if (!mix.first.must_be_sole)
			break;
	}
	return found ? found : choose_mixed(cut, layout, tensor, pair, ret_mix);
}

/* ---- parts ---- */

static uint64_t slice_off(const struct found *found, const struct pair *pair)
{
	return found->is_shared ? found->bytes / pair->slices * pair->slice : 0;
}

static void set_parts(const struct cut *cut, const struct family_tensor *tensor, const struct mix *mix,
		      const struct pair *pair, struct model_shape *shape, struct model_object *object)
{
	uint64_t weight_off = pair->weight->file_off + slice_off(pair->weight, pair), scale_off = 0;
	struct measure measure;

	take_measure(cut, tensor, mix, pair, &measure);
	if (pair->scale != NULL)
		scale_off = pair->scale->file_off + slice_off(pair->scale, pair);
	for (uint32_t i = 0; i < tensor->block_count; i++) {
		uint32_t role = tensor->block[i].role, scale_role = role + MODEL_GATE_SCALE;

		shape->part[role] = measure.weight[i];
		object->piece[role] = (struct model_piece){weight_off, pair->weight->shard};
		weight_off += measure.weight[i].bytes;
		if (mix->first.scales == ENCODING_NO_SCALES)
			continue;
		shape->part[scale_role] = measure.scale[i];
		object->piece[scale_role] = (struct model_piece){scale_off, pair->scale->shard};
		scale_off += measure.scale[i].bytes;
	}
}

static void add_name(struct model_shape *shape, const char *name)
{
	size_t used = strlen(shape->format);

	(void)snprintf(shape->format + used, sizeof shape->format - used, "%s%s", used == 0 ? "" : "+", name);
}

static int is_uniform(const struct mix *mixes, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (strcmp(mixes[i].first.name, mixes[0].first.name) != 0 ||
		    strcmp(mixes[i].last.name, mixes[0].first.name) != 0)
			return 0;
	return 1;
}

/* "int4-row", or one name a matrix, "int4-row+int4-row+int8-row", where they differ. */
static void name_format(const struct family_layout *layout, struct model_shape *shape, const struct mix *mixes)
{
	_Static_assert(FAMILY_BLOCKS_MAX * ENCODING_NAME_BYTES <= sizeof shape->format, "all names fit");
	shape->format[0] = '\0';
	if (is_uniform(mixes, layout->tensor_count)) {
		add_name(shape, mixes[0].first.name);
		return;
	}
	for (uint32_t i = 0; i < layout->tensor_count; i++) {
		for (uint32_t k = 1; k < layout->tensor[i].block_count; k++)
			add_name(shape, mixes[i].first.name);
		add_name(shape, mixes[i].last.name);
	}
}

/* ---- messages ---- */

__attribute__((format(printf, 2, 3))) static int refuse(const struct cut *cut, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)cnre_message_list(cut->message, MODEL_MESSAGE_BYTES, -EBADMSG, format, arguments);
	va_end(arguments);
	return -EBADMSG;
}

const char *cut_name(const struct cut *cut, const struct cut_place *place, uint32_t name, char *text, size_t text_bytes)
{
	const struct found *found = found_of(cut->found, place->row, place->expert, name);
	struct family_place full = {.stem = found != NULL ? found->stem : place->stem,
				    .name = name,
				    .number = place->row,
				    .expert = place->expert};

	if (strstr(cut->family->stems[full.stem], "%M") != NULL)
		full.number -= cut->extents->layers;
	return family_make_name(cut->family, &full, text, text_bytes);
}

static int refuse_missing(const struct cut *cut, const struct cut_place *place, uint32_t name)
{
	char text[NAME_BYTES];

	return refuse(cut, "tensor %s is missing in all %u shards: the checkpoint is incomplete: download it again, or name where the rest lies (--dir)",
		      cut_name(cut, place, name, text, sizeof text), cut->catalog->shard_count);
}

static int is_right_weight(const struct cut *cut, const struct family_tensor *tensor, const struct encoding *encoding,
			   const struct pair *pair)
{
	struct mix mix = {*encoding, *encoding};
	struct measure measure;

	take_measure(cut, tensor, &mix, pair, &measure);
	return (encoding->stored & ENCODING_STORED(pair->weight->dtype)) != 0 &&
	       has_bytes(pair->weight, pair, measure.weight_bytes) && has_shape(pair->weight, pair, encoding, &measure);
}

/* The encoding that the tensor comes closest to: by its weights, else by its dtype, else the first. */
static struct encoding nearest_encoding(const struct cut *cut, const struct family_layout *layout,
					const struct family_tensor *tensor, const struct pair *pair)
{
	struct encoding nearest = encoding_set_group(layout->encodings[0], cut->extents->group);
	int has_dtype = 0;

	for (uint32_t i = 0; layout->encodings[i] != NULL; i++) {
		struct encoding encoding = encoding_set_group(layout->encodings[i], cut->extents->group);
		int is_like = (encoding.stored & ENCODING_STORED(pair->weight->dtype)) != 0 &&
			      (encoding.scales != ENCODING_NO_SCALES) == (pair->scale != NULL) &&
			      !encoding.must_be_sole;

		if (is_like && is_right_weight(cut, tensor, &encoding, pair))
			return encoding;
		if (is_like && !has_dtype)
			nearest = encoding;
		has_dtype |= is_like;
	}
	return nearest;
}

/* No encoding fits: the tensor with its bytes, and what the nearest encoding would need. */
static int refuse_form(const struct cut *cut, const struct cut_place *place, const struct family_layout *layout,
		       const struct family_tensor *tensor, const struct pair *pair)
{
	struct encoding nearest = nearest_encoding(cut, layout, tensor, pair);
	int wants_scales = nearest.scales != ENCODING_NO_SCALES;
	int is_scale = wants_scales && is_right_weight(cut, tensor, &nearest, pair);
	const struct found *wrong = is_scale ? pair->scale : pair->weight;
	struct mix mix = {nearest, nearest};
	struct measure measure;
	uint64_t needs;
	char text[NAME_BYTES];

	if (wants_scales && pair->scale == NULL)
		return refuse_missing(cut, place, tensor->scale_name);
	take_measure(cut, tensor, &mix, pair, &measure);
	needs = (is_scale ? measure.scale_bytes : measure.weight_bytes) * (wrong->is_shared ? pair->slices : 1);
	(void)cut_name(cut, place, is_scale ? tensor->scale_name : tensor->name, text, sizeof text);
	return refuse(
		cut,
		"%s: tensor %s: %llu bytes in a dtype or shape that no format of family %s has (as %s it needs %llu): "
		"convert the checkpoint again, or correct the family if it is described in a file",
		cut->catalog->shard[wrong->shard].name, text, (unsigned long long)wrong->bytes, cut->family->name,
		nearest.name, (unsigned long long)needs);
}

static int refuse_ambiguous(const struct cut *cut, const struct cut_place *place, const struct family_tensor *tensor,
			    const struct encoding *encoding)
{
	char text[NAME_BYTES];

	return refuse(
		cut, "tensor %s: its bytes are %s and something else: no engine can tell, convert it to another format",
		cut_name(cut, place, tensor->name, text, sizeof text), encoding->name);
}

/* ---- layouts ---- */

static struct pair find_pair(const struct cut *cut, const struct cut_place *place, const struct family_tensor *tensor)
{
	struct pair pair = {.weight = found_of(cut->found, place->row, place->expert, tensor->name),
			    .slices = place->experts,
			    .slice = place->expert};

	if (tensor->scale_name != FAMILY_NO_NAME)
		pair.scale = found_of(cut->found, place->row, place->expert, tensor->scale_name);
	return pair;
}

static uint32_t count_present(const struct cut *cut, const struct cut_place *place, const struct family_layout *layout)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < layout->tensor_count; i++) {
		struct pair pair = find_pair(cut, place, &layout->tensor[i]);

		count += (pair.weight != NULL) + (pair.scale != NULL);
	}
	return count;
}

/* The layout that the expert has most tensors of: the right one, or the one to explain a failure with. */
static const struct family_layout *nearest_layout(const struct cut *cut, const struct cut_place *place)
{
	const struct family_layout *best = &cut->family->layouts[0];
	uint32_t best_count = 0;

	for (uint32_t i = 0; i < cut->family->layout_count; i++) {
		uint32_t count = count_present(cut, place, &cut->family->layouts[i]);

		if (count > best_count) {
			best = &cut->family->layouts[i];
			best_count = count;
		}
	}
	return best;
}

static uint32_t count_all(const struct cut *cut, const struct cut_place *place)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < cut->family->name_count; i++)
		count += found_of(cut->found, place->row, place->expert, i) != NULL;
	return count;
}

static int cut_tensor(const struct cut *cut, const struct cut_place *place, const struct family_layout *layout,
		      const struct family_tensor *tensor, struct mix *mix, struct model_shape *shape,
		      struct model_object *object)
{
	struct pair pair = find_pair(cut, place, tensor);
	int chosen;

	if (pair.weight == NULL)
		return refuse_missing(cut, place, tensor->name);
	chosen = choose_encoding(cut, layout, tensor, &pair, mix);
	if (chosen == 0)
		return refuse_form(cut, place, layout, tensor, &pair);
	if (chosen < 0)
		return refuse_ambiguous(cut, place, tensor, &mix->first);
	set_parts(cut, tensor, mix, &pair, shape, object);
	return 0;
}

int cut_expert(const struct cut *cut, const struct cut_place *place, struct model_shape *shape,
	       struct model_object *object)
{
	const struct family_layout *layout = nearest_layout(cut, place);
	struct mix mixes[FAMILY_BLOCKS_MAX];
	int result;

	memset(shape, 0, sizeof *shape);
	memset(object->piece, 0, sizeof object->piece);
	for (uint32_t i = 0; i < layout->tensor_count; i++) {
		result = cut_tensor(cut, place, layout, &layout->tensor[i], &mixes[i], shape, object);
		if (result < 0)
			return result;
	}
	if (count_all(cut, place) > count_present(cut, place, layout))
		return refuse(cut, "layer %u expert %u has tensors of two formats: convert the checkpoint again",
			      place->row, place->expert);
	name_format(layout, shape, mixes);
	return 0;
}
