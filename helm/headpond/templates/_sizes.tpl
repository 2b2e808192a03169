{{/* Bytes of a size in Kubernetes' words (4Gi) or the platform's (256MiB, a number). */}}
{{- define "headpond.bytes" -}}
{{- if not (kindIs "string" .) -}}
{{ int64 . }}
{{- else -}}
{{- $number := regexFind "^[0-9]*\\.?[0-9]+" (trim .) -}}
{{- $unit := trimPrefix $number (trim .) | trim | lower | trimSuffix "b" -}}
{{- $factors := dict "" 1 "k" 1000 "ki" 1024 "m" 1000000 "mi" 1048576 "g" 1000000000 "gi" 1073741824 "t" 1000000000000 "ti" 1099511627776 -}}
{{- if not (hasKey $factors $unit) -}}
{{- fail (printf "headpond: %q is no size; write one like 256MiB or 4Gi" .) -}}
{{- end -}}
{{ mulf (float64 $number) (float64 (get $factors $unit)) | int64 }}
{{- end -}}
{{- end -}}

{{- define "headpond.mib" -}}
{{ div (int64 .) 1048576 }} MiB
{{- end -}}

{{/* A size as a Kubernetes quantity: plain bytes are what both understand. */}}
{{- define "headpond.quantity" -}}
{{- if regexMatch "^[0-9.]+[KMGT]i?$" (toString .) -}}
{{ . | replace "K" "k" | replace "ki" "Ki" }}
{{- else -}}
{{ include "headpond.bytes" . }}
{{- end -}}
{{- end -}}
