"""The arguments of a tool: their JSON schema, made from the function's signature, and the way back from JSON to a call.

A signature becomes a msgspec struct with one field for each parameter. The struct gives the schema that the model reads and
decodes the text that the model writes, so that the two cannot disagree. Whatever would only fail in the middle of a turn
fails here, where the tool is made, with a sentence that guesses the mistake.
"""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol, cast, get_args, get_origin, get_type_hints

import msgspec

from ...storage.errors import ToolError, UsageError
from .context import ToolContext
from .docstring import split_docstring

Schema = dict[str, Any]
INVALID_ARGUMENTS = "INVALID_ARGUMENTS"


class Arguments(Protocol):
    """What a tool knows of its arguments."""

    @property
    def schema(self) -> Schema:
        """The JSON schema of an object that holds them."""
        ...

    def decode(self, text: str) -> dict[str, Any]:
        """Name → value, from the model's own text.

        Raises:
            ToolError: INVALID_ARGUMENTS, with a text that says what to do next.
        """
        ...

    def bind(self, context: Any, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments of the call."""
        ...


class SignatureArguments:
    """Arguments as a function's signature declares them."""

    def __init__(self, function: Callable[..., Any], tool: str, *, namespace: Mapping[str, Any] | None = None) -> None:
        self._tool = tool
        parameters = list(inspect.signature(function).parameters.values())
        hints = _Hints(function, namespace or {}, tool)
        self.takes_context = bool(parameters) and hints.is_context(parameters[0], first=True)
        if self.takes_context and parameters[0].kind is parameters[0].KEYWORD_ONLY:
            raise UsageError(f"the ToolContext of tool {tool!r} is keyword-only; make it the first positional parameter")
        self._parameters = parameters[1:] if self.takes_context else parameters
        for parameter in self._parameters:
            _check_parameter(parameter, tool, is_context=hints.is_context(parameter, first=False))
        types = {p.name: _widened(hints.resolve(p), p.default) for p in self._parameters}
        self._struct = _struct_of(tool, self._parameters, types)
        self.schema: Schema = _schema_of(self._struct)
        _describe(self.schema, split_docstring(function.__doc__)[1])
        self._decoder = msgspec.json.Decoder(self._struct)

    def decode(self, text: str) -> dict[str, Any]:
        """Name → value, defaults filled in; an empty text means no arguments."""
        try:
            struct = self._decoder.decode(text if text.strip() else "{}")
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise _invalid(self._tool, str(error), self.schema) from error
        return {name: getattr(struct, name) for name in self._struct.__struct_fields__}

    def bind(self, context: Any, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """By position where the function allows it, keyword-only parameters by name."""
        positional = [context] if self.takes_context else []
        keywords: dict[str, Any] = {}
        for parameter in self._parameters:
            if parameter.kind is parameter.KEYWORD_ONLY:
                keywords[parameter.name] = arguments[parameter.name]
            else:
                positional.append(arguments[parameter.name])
        return positional, keywords


class SchemaArguments:
    """Arguments whose schema comes from elsewhere (MCP, delegation); the function gets the context and one dict.

    Only the form is checked here: whoever gave the schema validates against it.
    """

    def __init__(self, schema: Schema, tool: str) -> None:
        self.schema, self._tool = schema, tool

    def decode(self, text: str) -> dict[str, Any]:
        """The JSON object as it is, if it has what is required and, where the schema says so, nothing else."""
        try:
            values = msgspec.json.decode(text if text.strip() else "{}", type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise _invalid(self._tool, str(error), self.schema) from error
        for name in self.schema.get("required", ()):
            if name not in values:
                raise _invalid(self._tool, f"Object missing required field `{name}`", self.schema)
        if self.schema.get("additionalProperties") is False:
            for name in values:
                if name not in self.schema.get("properties", {}):
                    raise _invalid(self._tool, f"Object contains unknown field `{name}`", self.schema)
        return values

    def bind(self, context: Any, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Context and arguments, as two positional arguments."""
        return [context, dict(arguments)], {}


def _invalid(tool: str, why: str, schema: Schema) -> ToolError:
    """The model reads this: what was wrong, what the tool takes, and what to do next."""
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    takes = ", ".join(name if name in required else f"{name} (optional)" for name in properties) or "none"
    unknown = why.rpartition("unknown field `")[2].rstrip("`") if "unknown field `" in why else ""
    close = difflib.get_close_matches(unknown, list(properties), 1) if unknown else []
    guess = f" (did you mean `{close[0]}`?)" if close else ""
    return ToolError(
        f"The arguments of {tool} are invalid: {why}{guess}. Arguments: {takes}. "
        f"Call {tool} again with one JSON object that fits its schema.",
        code=INVALID_ARGUMENTS,
    )


# -- from the signature to types


class _Hints:
    """The types behind a function's annotations, each resolved alone, so that only what is needed must be resolvable."""

    def __init__(self, function: Callable[..., Any], namespace: Mapping[str, Any], tool: str) -> None:
        self._globals: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
        self._locals, self._tool = dict(namespace), tool

    def is_context(self, parameter: inspect.Parameter, *, first: bool) -> bool:
        """Whether it takes the ToolContext; a first `ctx` without a type does, too."""
        annotation = parameter.annotation
        if annotation is parameter.empty:
            return first and parameter.name == "ctx"
        try:
            annotation = self.resolve(parameter)
        except UsageError:
            # The type inside the brackets may exist for type checkers alone; it is not needed here.
            return isinstance(annotation, str) and annotation.partition("[")[0].rpartition(".")[2] == "ToolContext"
        annotation = get_origin(annotation) or annotation
        return isinstance(annotation, type) and issubclass(annotation, ToolContext)

    def resolve(self, parameter: inspect.Parameter) -> Any:
        """The type itself, `Annotated` kept."""
        return self._resolve(parameter.name, parameter.annotation)

    def result(self, annotation: Any) -> Any:
        """The type of the result; Any where it cannot be known."""
        try:
            return Any if annotation is inspect.Signature.empty else self._resolve("return", annotation)
        except UsageError:
            return Any

    def _resolve(self, name: str, annotation: Any) -> Any:
        holder = type("Holder", (), {"__annotations__": {name: annotation}})
        try:
            return get_type_hints(holder, self._globals, self._locals, include_extras=True)[name]
        except Exception as error:
            raise UsageError(
                f"the type {annotation!r} of parameter {name!r} of tool {self._tool!r} cannot be resolved ({error}); "
                "import or define it at the top of the tool's module"
            ) from error


def result_type(function: Callable[..., Any], tool: str, *, namespace: Mapping[str, Any] | None = None) -> Any:
    """What the function says it returns; Any if it says nothing that can be checked."""
    declared = _Hints(function, namespace or {}, tool).result(inspect.signature(function).return_annotation)
    try:
        msgspec.json.Decoder(declared)
        msgspec.json.schema(declared)
    except Exception:  # a type that msgspec cannot check is allowed for results; encoding decides
        return Any
    return declared


def _check_parameter(parameter: inspect.Parameter, tool: str, *, is_context: bool) -> None:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise UsageError(f"tool {tool!r} takes {star}{name}, which has no schema; name each parameter, or take one list or dict")
    if is_context:
        raise UsageError(f"the ToolContext {name!r} of tool {tool!r} must be its first parameter")
    if parameter.annotation is parameter.empty and name in ("self", "cls"):
        raise UsageError(f"tool {tool!r} is a method; make the tool from a bound one: tool(instance.{tool})")
    if parameter.annotation is parameter.empty:
        raise UsageError(f"parameter {name!r} of tool {tool!r} has no type; write {name}: str, or whatever it takes")


def _widened(annotation: Any, default: Any) -> Any:
    """`x: int = None` means that None is allowed, and models do send null for what they leave out."""
    if default is not None or type(None) in (annotation, *get_args(annotation)):
        return annotation
    if get_origin(annotation) is Annotated:
        base, *metadata = get_args(annotation)
        return Annotated[(_widened(base, None), *metadata)]
    return typing.Union[annotation, None]  # noqa: UP007  (annotation is a value here, and may be a string's ForwardRef)


def _struct_of(tool: str, parameters: list[inspect.Parameter], types: Mapping[str, Any]) -> type[msgspec.Struct]:
    for parameter in parameters:
        try:
            msgspec.json.schema(types[parameter.name])
        except Exception as error:
            reason = str(error).strip().rpartition("\n")[2]
            raise UsageError(
                f"parameter {parameter.name!r} of tool {tool!r} has a type that JSON cannot carry: {reason}; "
                "use str, int, float, bool, list, dict, Literal, or a msgspec.Struct, dataclass or TypedDict"
            ) from error
    fields = [(p.name, types[p.name], *_default(p)) for p in parameters]
    return msgspec.defstruct(f"{tool}_arguments", cast("Any", fields), kw_only=True, forbid_unknown_fields=True)


def _default(parameter: inspect.Parameter) -> tuple[Any, ...]:
    value: Any = parameter.default
    if value is parameter.empty:
        return ()
    if value is None or isinstance(value, str | int | float):
        return (value,)
    return (msgspec.field(default_factory=lambda: value),)  # the one object Python itself would pass


# -- from types to the schema


def _schema_of(struct: type[msgspec.Struct]) -> Schema:
    (reference,), definitions = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    own = reference["$ref"].rpartition("/")[2]
    schema = {key: value for key, value in definitions.pop(own).items() if key not in ("title", "description")}
    schema.setdefault("properties", {})
    schema.setdefault("required", [])
    for field in msgspec.structs.fields(struct):
        if field.default_factory is not msgspec.NODEFAULT:
            schema["properties"][field.encode_name]["default"] = msgspec.to_builtins(field.default_factory())
    if definitions:
        schema["$defs"] = definitions
    return schema


def _describe(schema: Schema, texts: Mapping[str, str]) -> None:
    """What the docstring says of a parameter, unless `Meta(description=)` said it already."""
    for name, text in texts.items():
        if name in schema["properties"] and text:
            schema["properties"][name].setdefault("description", text)
